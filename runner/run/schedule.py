"""Runs the planned cells in threads: each on devices of its own, each stored the moment it ends.

A cell that fails is a row that says why. A cell that is not to blame is tried again: on another GPU of the model where its own was lost,
and after the engine is back where that went down.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from runner.engines.base import EngineError, EngineGoneError, ReadyImage, Slot
from runner.engines.host_fault import is_host_fault, of_disk, rooms
from runner.errors import HostFaultError, UserError
from runner.machine.devices import Gpu, Machine
from runner.machine.telemetry import GpuSampler, lost_board
from runner.plan.combination import Cell
from runner.results.parcel import MOST_REASON, Parcel
from runner.run.attempt import Attempt, AttemptContext
from runner.run.dispatch import Dispatcher, Job, Place, places, turns

# The part of the host's memory that all cells together may use. The rest is for the runner and the system.
_MEMORY_SHARE = 0.9

# How often the watchdog looks.
_WATCH_SECONDS = 0.5

# The run ends when an engine that went down is not back within this time.
_ENGINE_SECONDS = 180.0

# A run that is stopped waits so long for its engine to end the cells, then for an answer of the engine, and so on while it answers.
_PATIENCE_SECONDS = 2.0
_ANSWER_SECONDS = 1.5

# A cell is not tried more often than this when the engine goes down under it. An engine that goes down answers for a while, and refuses
# cells meanwhile: all that it refuses one cell within this time is one outage.
_ATTEMPTS = 3
_OUTAGE_SECONDS = 60.0

# A cell is begun once more so long after an error of CUDA that may pass: another process may have held the GPU.
_PASSING_SECONDS = 2.0

# This number of repeats in a row that the machine cut ends the run: the others would go the same way. No repeat is begun more often than
# this by reason of its machine. After each, what holds the room may give it back, and other cells may end.
_FAULTS = 2
_FAULT_SECONDS = 2.0

# A GPU is cool again when it is at most so many degrees warmer than at the start of the run. No cell waits longer than this.
_COOL_CELSIUS = 3.0
_COOL_SECONDS = 300.0

# The room that another cell took is waited for so long.
_ROOM_SECONDS = 10.0


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    status: str
    reason: str | None
    wall_seconds: float
    disturbed: str = ""  # by what, where other work ran beside a cell of a CPU


class Observer(Protocol):
    """Gets what happens. The threads of the cells call it."""

    def preparing(self, image: str, line: str) -> None: ...

    def started(self, job: Job) -> None: ...

    def printed(self, job: Job, event: Mapping[str, Any]) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...


class JobSource(Protocol):
    """The source of the next job, which learns of its end. A Dispatcher is one."""

    def next(self, now: float) -> tuple[Job, tuple[Place, ...]] | None:
        """The job that starts now, and its devices; None while nothing can start."""
        ...

    def ended(self, job: Job) -> None:
        """A job has ended: its devices are free."""
        ...

    def put_back(self, job: Job, last: bool = False) -> None:
        """A job that was not to blame for its end, and is to be tried again, after the others if `last`. It has `ended` before."""
        ...

    def lost(self, board: str) -> None:
        """A GPU is gone."""
        ...

    def without_devices(self) -> list[Job]:
        """The waiting jobs that no device is left for."""
        ...


def slot_of(machine: Machine, chosen: Sequence[Place]) -> Slot:
    """A job's part of the machine: the CPUs near its GPUs and a share of the memory, from the nodes near them.

    GPU cells and CPU cells never run at once, since a CPU cell would take the GPU cells' cores: CellRunner.run_jobs ends one kind first.
    """
    memory = int(_MEMORY_SHARE * machine.cpu.memory_bytes)
    quota = None if machine.cpu.quota is None else machine.cpu.count
    if chosen[0].kind == "cpu":
        return Slot("cpu", (), machine.cpu.cpus, memory, quota_threads=quota)
    gpus = {gpu.uuid: gpu for gpu in machine.gpus}
    own = [gpus[place.uuid] for place in chosen]
    cpus = tuple(sorted({cpu for gpu in own for cpu in _share(machine, gpu)}))
    nodes = {gpu.numa_node for gpu in own}
    # Memory is bound to nodes only where the machine has several and names those of the GPUs.
    bound = nodes <= set(machine.cpu.memory_nodes) and len(machine.cpu.memory_nodes) > 1
    boards = len({gpu.board for gpu in machine.gpus})
    where = tuple(sorted(node for node in nodes if node is not None)) if bound else ()
    share = quota and max(1, len(own) * quota // boards)
    return Slot("cuda", tuple(gpu.uuid for gpu in own), cpus, len(own) * (memory // boards), where, quota_threads=share)


def _share(machine: Machine, gpu: Gpu) -> tuple[int, ...]:
    """The CPUs of one GPU: GPUs that are near the same CPUs divide them.

    They divide physical cores, since two cells on one core slow each other down. Where there are fewer cores than GPUs they divide CPUs.
    """
    boards = list(dict.fromkeys(other.board for other in machine.gpus if other.cpus == gpu.cpus))
    parts = _cores(machine, gpu.cpus)
    if len(parts) < len(boards):
        parts = [(cpu,) for cpu in gpu.cpus]
    share = max(1, len(parts) // len(boards))
    begin = boards.index(gpu.board) * share
    return tuple(sorted(cpu for part in parts[begin : begin + share] for cpu in part)) or gpu.cpus


def _cores(machine: Machine, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """These CPUs by physical core, in the order of each core's first CPU."""
    core_of = {cpu: core for core in machine.cpu.cores for cpu in core}
    cores: dict[tuple[int, ...], list[int]] = {}
    for cpu in cpus:
        cores.setdefault(core_of.get(cpu, (cpu,)), []).append(cpu)
    return [tuple(core) for core in cores.values()]


def _begin(action: Callable[[], object]) -> threading.Event:
    """Do something in a thread. What is returned is set when that has ended, well or in an EngineError."""
    done = threading.Event()

    def work() -> None:
        try:
            with contextlib.suppress(EngineError):
                action()
        finally:
            done.set()

    threading.Thread(target=work, daemon=True).start()
    return done


@dataclass
class CellRunner:
    """Runs cells in threads, each on devices of its own. `seconds` says about how long a cell takes."""

    site: AttemptContext
    machine: Machine
    observer: Observer
    seconds: Callable[[Cell], float]
    # Reads the temperatures before a cell starts. None: no cell waits for its GPU to cool.
    cool_down: GpuSampler | None = None
    # True if a cell would end in the time that is left. Others are not started, and have no outcome. None: all would.
    fits: Callable[[Cell], bool] | None = None
    # Called while no CPU cell runs, with whether a GPU cell does.
    renew: Callable[[bool], None] | None = None
    # Called when a cell has ended well, with its seconds.
    learn: Callable[[Cell, float], None] | None = None
    # Called with a job that could not be run, the kind and the reason. None: its row is stored here.
    refuse: Callable[[Job, str, str], None] | None = None
    # Called with a job that is due again by reason of its machine, and the reason. None: it is left.
    leave: Callable[[Job, str], None] | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    # The UUIDs of the GPUs that fell off the bus.
    lost: list[str] = field(default_factory=list)
    # The boards that CUDA opens no more -> its reason.
    closed: dict[str, str] = field(default_factory=dict)
    # The images that open no GPU where others may -> the reason.
    unable: dict[str, str] = field(default_factory=dict)
    # True if a cell found no GPU that its framework opens, and was not begun again.
    no_device: bool = False
    # True if the engine did not answer when the run was stopped: its cells may go on.
    hung: bool = False
    _active: dict[Job, Attempt] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    # How many outages a job has met, and when the last of them began.
    _outages: dict[Job, tuple[int, float]] = field(default_factory=dict)
    # The jobs that are begun once more after an error of CUDA that may pass -> the error.
    _passed: dict[Job, str] = field(default_factory=dict)
    # The jobs that the machine cut, and that have no further try in this run -> the reason.
    due: dict[Job, str] = field(default_factory=dict)
    # How many attempts in a row, and how many of each job, the machine cut.
    _faults: int = 0
    _cuts: Counter[Job] = field(default_factory=Counter)
    _start_celsius: dict[str, float] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _engine_lock: threading.Lock = field(default_factory=threading.Lock)
    _broken: BaseException | None = None

    def prepare(self, images: Iterable[Any]) -> tuple[dict[str, ReadyImage], dict[str, str]]:
        """Prepare the images while nothing is measured: those that are ready, and the reasons of the others.

        Raises EngineError where the engine went down and does not come back.
        """
        ready: dict[str, ReadyImage] = {}
        failed: dict[str, str] = {}
        for image in images:
            if self._stopped.is_set():
                break
            for _ in range(_ATTEMPTS):
                try:
                    ready[image.name] = self.site.engine.prepare(image, partial(self.observer.preparing, image.name))
                    break
                except EngineGoneError as error:
                    gone = failed[image.name] = str(error)
                except UserError as error:
                    failed[image.name] = str(error)
                    if (why := self._fault_of_machine(error)) and (fault := self._count_fault(why)):
                        raise fault from error
                    break
                # If the engine does not come back, this ends the run; --resume prepares the image again.
                self._wait_for_engine(gone)
        return ready, {name: why for name, why in failed.items() if name not in ready}

    def run_jobs(self, jobs: Sequence[Job], ready: Mapping[str, ReadyImage]) -> None:
        """Run the jobs; returns when all have ended or stop() was called. May be called again. Raises what broke the store."""
        for kind in ("cuda", "cpu"):
            places_of_kind = self._left(places(self.machine, kind))
            of_kind = [job for job in jobs if job.cell.device_kind == kind]
            self._remember_temperatures(places_of_kind)
            # The dispatcher's sums need lengths that stay, and the estimates learn meanwhile.
            lengths = {job.cell: self.seconds(job.cell) for job in of_kind}
            try:
                for turn in turns(of_kind):
                    self._drain(Dispatcher(turn, self._left(places_of_kind), lengths.__getitem__), ready)
            except BaseException:
                self.stop()
                raise
            finally:
                self._join()
            if self._broken:
                raise self._broken

    def has_gpus(self) -> bool:
        """True if a GPU is left to measure on."""
        return bool(self._left(places(self.machine, "cuda")))

    def _left(self, every: Sequence[Place]) -> list[Place]:
        """The places without those whose GPU was lost, or is opened no more."""
        return [place for place in every if place.board not in self.lost and place.board not in self.closed]

    def serve(self, source: JobSource, ready: Mapping[str, ReadyImage]) -> None:
        """Run what `source` hands out, until nothing of it runs and it has no more; returns at once after stop().

        Raises what broke the store.
        """
        try:
            self._drain(source, ready)
        finally:
            if self._stopped.is_set():
                self._join()
        if self._broken:
            raise self._broken

    def wake(self) -> None:
        """Look at once for what can start: the source of `serve` has more."""
        with self._changed:
            self._changed.notify_all()

    def end(self, job: Job) -> None:
        """End one running job at once. It is not stored."""
        for running, attempt in list(self._active.items()):
            if running == job:
                # In a thread: an engine that does not answer holds the call up.
                threading.Thread(target=attempt.stop, daemon=True).start()

    def _drain(self, dispatcher: JobSource, ready: Mapping[str, ReadyImage]) -> None:
        """Start what can start, watch what runs, until nothing is left."""
        with self._changed:
            while not self._stopped.is_set():
                for job in dispatcher.without_devices():
                    self.fail(job, *self._without_devices())
                if self.renew and all(attempt.boards for attempt in self._active.values()):
                    self.renew(bool(self._active))
                while started := dispatcher.next(time.monotonic()):
                    job, chosen = started
                    if unable := self.unable.get(job.cell.image) if chosen[0].kind == "cuda" else None:
                        dispatcher.ended(job)
                        self.fail(job, "no-device", unable)
                    elif self.fits is None or self.fits(job.cell):
                        self._start(dispatcher, job, chosen, ready)
                    else:
                        dispatcher.ended(job)
                        if job in self._passed:  # it was begun, and there is no time for the second try
                            self.fail(job, "no-device", self._passed[job])
                if not self._active:
                    return
                # With a limit: a wait without one would hold back Ctrl-C.
                self._changed.wait(_WATCH_SECONDS)
                for attempt in list(self._active.values()):
                    attempt.watch(time.monotonic())

    def _start(self, dispatcher: JobSource, job: Job, chosen: Sequence[Place], ready: Mapping[str, ReadyImage]) -> None:
        slot = slot_of(self.machine, chosen)
        boards = [place.board for place in chosen if place.kind == "cuda"]
        prepared = ready[job.cell.image]
        capabilities = {gpu.compute_capability for gpu in self.machine.gpus if gpu.uuid in slot.device_uuids}
        compiles = prepared.source is not None and not capabilities.isdisjoint(prepared.source.ptx_only)
        attempt = Attempt(self.site, job, slot, boards, partial(self.observer.printed, job), compiles)
        attempt.may_pass = job not in self._passed
        self._active[job] = attempt
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # A daemon: one that waits for an engine without an answer must not keep this process.
        thread = threading.Thread(target=self._work, args=(dispatcher, attempt, prepared), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, dispatcher: JobSource, attempt: Attempt, prepared: ReadyImage) -> None:
        """One attempt, in a thread of its own; then its devices are free for the next."""
        again = False
        try:
            try:
                self._cool(attempt.boards)
                again = not self._stopped.is_set() and self._attempt(attempt, prepared)
            except HostFaultError:
                raise
            except EngineError as error:
                again = self._after_engine_error(attempt, error)
        except BaseException as error:
            # run_jobs raises it in the main thread.
            self._broken = error
            self.stop()
        with self._changed:
            if attempt.lost and attempt.lost not in self.lost:
                self.lost.append(attempt.lost)
                dispatcher.lost(attempt.lost)
            # Among nodes, the driver decides what a node that cannot compute gets.
            if not again and isinstance(dispatcher, Dispatcher):
                self._close(dispatcher, attempt)
            del self._active[attempt.job]
            dispatcher.ended(attempt.job)
            if again:
                dispatcher.put_back(attempt.job, last=attempt.job in self._cuts)
            self._changed.notify_all()

    def _close(self, dispatcher: Dispatcher, attempt: Attempt) -> None:
        """No cell starts any more on the GPUs, or of the image, with which an attempt showed that CUDA opens none."""
        for board in attempt.boards if attempt.unopened else ():
            self.closed[board] = str(attempt.unopened)
            dispatcher.lost(board)
        self.no_device = self.no_device or attempt.no_device
        if attempt.unable:
            self.unable[attempt.job.cell.image] = attempt.unable

    def _attempt(self, attempt: Attempt, prepared: ReadyImage) -> bool:
        """Run it and report how it ended; True when it is to be tried again: on another GPU than the one that it lost, or after an error
        of CUDA that may pass."""
        self.observer.started(attempt.job)
        if ended := attempt.run(prepared):
            self._faults = 0
            self._report(Outcome(attempt.job, *ended, attempt.disturbed))
            return False
        if attempt.cut and not attempt.stopped:
            return self._after_host_fault(attempt.job, attempt.cut)
        if attempt.passing:
            self._passed[attempt.job] = attempt.passing
            self._stopped.wait(_PASSING_SECONDS)
        return (attempt.lost is not None or bool(attempt.passing)) and not attempt.stopped

    def _after_engine_error(self, attempt: Attempt, error: EngineError) -> bool:
        """True if the job is tried again, because it was not to blame. Otherwise its row says what happened."""
        job = attempt.job
        if isinstance(error, EngineGoneError) and not self._stopped.is_set():
            met, began = self._outages.get(job, (0, -math.inf))
            if (now := time.monotonic()) - began > _OUTAGE_SECONDS:
                met, began = met + 1, now
            self._outages[job] = met, began
            self._stopped.wait(1.0)
            self._wait_for_engine(str(error))
            if met < _ATTEMPTS:
                return True
        elif attempt.boards and (lost := lost_board(attempt.boards)):
            attempt.lost = lost
            return True
        elif not self._stopped.is_set() and (why := self._fault_of_machine(error)):
            return self._after_host_fault(job, why)
        if not self._stopped.is_set():
            self.fail(job, "engine", str(error))
        return False

    def _fault_of_machine(self, error: BaseException) -> str:
        """Why the machine is the reason of an error; empty where it is not."""
        if is_host_fault(error):
            return str(error)
        failing = of_disk(self.site.engine.images_folder)
        return f"{error}; {failing}" if failing else ""

    def _after_host_fault(self, job: Job, reason: str) -> bool:
        """True if a job that its machine cut is tried again, after the others. It has no row: it is due again, now or at --resume.

        Raises HostFaultError where the machine cut the one before as well.
        """
        self._cuts[job] += 1
        again = self._cuts[job] < _FAULTS
        # Another cell that runs may be what takes the room: its end is waited for, and the machine is not blamed.
        end = time.monotonic() + (_ROOM_SECONDS if len(self._active) > 1 else _FAULT_SECONDS)
        alone = len(self._active) == 1
        while time.monotonic() < end and not self._stopped.wait(0.1) and (alone or len(self._active) > 1):
            pass
        fault = self._count_fault(reason) if alone else None
        if self.leave and (fault or not again):
            self.leave(job, reason)
        if fault:
            raise fault
        if not again:
            self.due[job] = reason
        return again and not self._stopped.is_set()

    def _count_fault(self, reason: str) -> HostFaultError | None:
        """The machine cut a repeat, or an image in the making. The error that ends the run, where it cut the one before as well."""
        self._faults += 1
        if self._faults < _FAULTS:
            return None
        disks = rooms(self.site.run.folder, self.site.engine.images_folder)
        return HostFaultError(f"this machine failed {_FAULTS} times in a row: {reason} ({disks})")

    def _wait_for_engine(self, reason: str) -> None:
        """Wait until the engine answers again, and clear up its leftovers. Raises EngineError when it does not come back."""
        # One thread waits for all.
        with self._engine_lock:
            end = time.monotonic() + _ENGINE_SECONDS
            while gone := self._gone():
                if time.monotonic() >= end:
                    raise HostFaultError(f"{reason}; {gone}, and it did not come back; start it")
                if self._stopped.wait(1.0):
                    return

    def _gone(self) -> str | None:
        """Why the engine does not answer. None: it answers, and what it left behind is cleared up as far as that goes."""
        gone = self.site.engine.unavailable()
        if gone is None:
            # A container that does not answer says nothing of the engine.
            with contextlib.suppress(EngineError):
                self.site.engine.sweep()
        return gone

    def stop(self) -> None:
        """End every running cell at once and start no more. The repeats that are cut off are not stored."""
        self._stopped.set()
        for attempt in list(self._active.values()):
            attempt.stopped = True
            # In a thread each, since an engine that does not answer holds each call up.
            threading.Thread(target=attempt.stop, daemon=True).start()

    def _join(self) -> None:
        """Wait for the threads of the cells."""
        for thread in self._threads:
            # With a limit: stop() may be called meanwhile.
            while thread.is_alive() and not self._stopped.is_set():
                thread.join(_PATIENCE_SECONDS)
        for thread in self._threads:
            if thread.is_alive():
                self._patiently(thread.join)

    def sweep(self) -> None:
        """Clear up what the cells left, at the end of a run."""
        if self._stopped.is_set():
            self._patiently(self.site.engine.sweep)
        else:
            with contextlib.suppress(EngineError):
                self.site.engine.sweep()

    def _patiently(self, action: Callable[[], object]) -> None:
        """Do what the engine must do at the end of a stopped run, unless it does not answer: nobody waits for that after Ctrl-C."""
        if not self.hung:
            done = _begin(action)
            while not done.wait(_PATIENCE_SECONDS):
                if not _begin(self.site.engine.unavailable).wait(_ANSWER_SECONDS):
                    self.hung = True
                    return

    def fail(self, job: Job, kind: str, reason: str) -> None:
        """Store a job that could not be run."""
        if self.refuse:
            return self.refuse(job, kind, reason)
        engine = self.site.engine.name_of(job.cell.image)
        parcel = Parcel(job.cell.id, job.repeat, engine, ended_by=(kind, reason[:MOST_REASON]))
        self.site.store(job, parcel)
        return self._report(Outcome(job, "failed", reason, 0.0))

    def _without_devices(self) -> tuple[str, str]:
        """The kind and the reason of a failure for which no GPU is left."""
        if not self.closed:
            return "gpu-lost", "every GPU that it could run on has fallen off the bus"
        reasons = "; ".join(dict.fromkeys(self.closed.values()))
        return "no-device", f"no GPU that it could run on can be opened any more: {reasons}"

    def _report(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if self.learn and outcome.status == "ok":
            self.learn(outcome.job.cell, outcome.wall_seconds)
        self.observer.ended(outcome)

    def _remember_temperatures(self, measured: Sequence[Place]) -> None:
        if self.cool_down is None:
            return
        for place in measured:
            celsius = self.cool_down.temperature(place.board) if place.kind == "cuda" else None
            if celsius is not None:
                # Later it is warm from what ran before.
                self._start_celsius.setdefault(place.board, celsius)

    def _cool(self, boards: Sequence[str]) -> None:
        """Wait until the GPUs are as cool as they were at the start of the run, but no longer than _COOL_SECONDS."""
        end = time.monotonic() + _COOL_SECONDS
        while self.cool_down is not None and time.monotonic() < end and not self._stopped.is_set():
            now = {board: self.cool_down.temperature(board) for board in boards if board in self._start_celsius}
            if all(c is None or c <= self._start_celsius[board] + _COOL_CELSIUS for board, c in now.items()):
                return
            self._stopped.wait(1.0)
