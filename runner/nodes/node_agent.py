"""The agent on a node: a run's cells with their engine, leases, telemetry and watchdog, at the word of a driver over a pipe.

Only finished repeats travel, and stay in the spool until the driver has them. When the pipe ends, every cell ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from bench import identity
from runner.catalog.architectures import kernel_machine
from runner.catalog.own_networks import is_path
from runner.engines.base import ReadyImage
from runner.errors import HostFaultError, UserError, naming
from runner.machine import lease, telemetry
from runner.nodes import wire
from runner.nodes.frames import Decoder, FrameError, encode
from runner.nodes.spool import Spool
from runner.results import parcel as parcels
from runner.results import store
from runner.run import begin, execution
from runner.run.dispatch import Job, Place, places
from runner.run.options import Options, stored_options
from runner.run.prospect import Prospect
from runner.run.schedule import CellRunner, Outcome
from runner.text import in_a_line

# An agent that the driver hears nothing of for longer counts as silent, and then as lost (runner.nodes.tracker).
BEAT_SECONDS = 5.0
_PROGRESS_SECONDS = 1.0
_READ_BYTES = 1 << 16


class _Pipe:
    """The way to the driver. Any thread may send. A driver that is gone takes nothing more, and that is no fault here."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._lock = threading.Lock()

    def send(self, message: wire.FromAgent, body: bytes = b"") -> None:
        content = encode(message.frame(body))
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._sink.write(content)
            self._sink.flush()


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Be the agent of the driver at the other ends of two pipes, until it says bye or is gone."""
    pipe = _Pipe(sink)
    pipe.send(wire.release_versions())
    # A shell starts what it puts into the background with Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    agent = Agent(pipe)
    # The exit of the block ended its cells.
    with execution.interruptible(), contextlib.suppress(KeyboardInterrupt):
        try:
            # A beat needs no lock of the cells: it shows that the process runs, not that it has nothing to wait for.
            threading.Thread(target=_beat, args=(pipe,), daemon=True).start()
            threading.Thread(target=_listen, args=(source, agent), daemon=True).start()
            agent.run()
        except UserError as error:
            pipe.send(wire.Refusal(why=_line(str(error))))
        finally:
            # The driver's end may still come.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _beat(pipe: _Pipe) -> None:
    while True:
        pipe.send(wire.Beat())
        time.sleep(BEAT_SECONDS)


def _listen(source: BinaryIO, agent: Agent) -> None:
    """Take what the driver says. End of input or an invalid message stops the agent."""
    decoder = Decoder()
    with contextlib.suppress(FrameError, OSError):
        while chunk := os.read(source.fileno(), _READ_BYTES):
            for frame in decoder.feed(chunk):
                message = wire.from_driver(frame)
                if isinstance(message, wire.Bye):
                    return agent.leave()
                agent.take(message)
    return agent.leave()


def _with_networks(options: Options, look: wire.Look, folder: Path) -> Options:
    """The options with a person's own networks by the files that the driver sent: its paths are of its own machine."""
    words = [word for word in options.workloads if not is_path(word)]
    for name, files in look.networks.items():
        (folder / name).mkdir()
        for file, content in files.items():
            with naming(folder / name / file):
                (folder / name / file).write_bytes(content.encode("latin-1"))
    return options.model_copy(update={"workloads": (*words, *(str(folder / name) for name in look.networks))})


class Agent:
    """The cells of one run on this node. The main thread calls run(); another one take() and leave()."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._orders: deque[wire.Look | wire.Begin | wire.Prepare] = deque()
        self._runs: deque[wire.Run] = deque()
        self._changed = threading.Condition()
        self._cells: CellRunner | None = None
        self._spool: Spool | None = None
        self._ready: dict[str, ReadyImage] = {}
        # Job -> its attempt, and the boards that it holds.
        self._held: dict[Job, tuple[str, tuple[Place, ...]]] = {}
        # The job that ended last; a CellRunner says at once whether it is put back.
        self._last: tuple[Job, str, tuple[Place, ...]] | None = None
        self._node = ""
        self._lost: set[str] = set()
        self._stopped: set[str] = set()

    # --- the thread that listens

    def take(self, message: wire.FromDriver) -> None:
        """Note what is to be done."""
        with self._changed:
            if isinstance(message, wire.Run):
                self._runs.append(message)
            elif isinstance(message, wire.Look | wire.Begin | wire.Prepare):
                self._orders.append(message)
            self._changed.notify_all()
        if isinstance(message, wire.Ack) and self._spool:
            self._spool.forget(message.attempt)
        if isinstance(message, wire.Stop):
            self._stop(message.attempt)
        if self._cells:
            self._cells.wake()

    def leave(self) -> None:
        """End everything: the driver is gone, or has no more to do. It interrupts the main thread wherever that is."""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _stop(self, attempt: str) -> None:
        with self._changed:
            waiting = [run for run in self._runs if run.attempt == attempt]
            for run in waiting:
                self._runs.remove(run)
            running = [job for job, (held, _) in self._held.items() if held == attempt]
            self._stopped |= {attempt} if running else set()
        for _ in waiting:
            self._pipe.send(wire.Returned(attempt=attempt, why="it was stopped before it began"))
        for job in running:
            if self._cells:
                self._cells.end(job)

    # --- the main thread

    def run(self) -> None:
        """Do what the driver says until leave(). Raises UserError for what this node cannot do."""
        with contextlib.ExitStack() as stack:
            networks = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dlbench-networks-")))
            prospect = self._look(self._next(wire.Look), networks)
            order = self._next(wire.Begin)
            leased = [] if order.leased else prospect.leased(prospect.jobs)
            stack.enter_context(lease.hold(leased, order.run, self._say, prospect.options.wait))
            boards = prospect.boards(prospect.jobs)
            execution.open_gpus(prospect.engine.name, prospect.machine.gpus if boards else (), order.run)
            self._spool = Spool(order.run, self._node)
            stack.callback(self._spool.close)
            monitor = stack.enter_context(telemetry.Monitor())
            run = store.RunStore(stack.enter_context(self._spool.scratch()) / order.run)
            begin.keep_networks(prospect.options, run)
            code = identity.code_digests({(cell.framework, cell.workload) for cell in prospect.plan.cells})
            context = execution.attempt_context(prospect, run, monitor, dict(code), self._keep)
            self._cells = CellRunner(context, prospect.machine, _Observer(self), lambda _: 0.0)
            self._cells.refuse, self._cells.leave = self._refuse, self._leave
            prospect.engine.sweep()
            spooled = list(self._spool.parcels())
            self._pipe.send(wire.Begun(spooled=tuple(attempt for attempt, _ in spooled)))
            for attempt, parcel in spooled:
                self._pipe.send(wire.Ended(attempt=attempt), parcel)
            try:
                self._work(self._cells, prospect)
            except HostFaultError:
                self._return_all()
                raise
            finally:
                self._cells.stop()
                self._cells.serve(self, {})
                self._cells.sweep()

    def _work(self, cells: CellRunner, prospect: Prospect) -> None:
        while True:
            with self._changed:
                while not self._orders and not self._runs:
                    # With a limit: a wait without one would hold back the signal.
                    self._changed.wait(1.0)
                order = self._orders.popleft() if self._orders else None
            if isinstance(order, wire.Prepare):
                self._prepare(cells, prospect, order.image)
            else:
                cells.serve(self, self._ready)

    def _next(self, kind: type[Any]) -> Any:
        """The next order, which must be of this kind."""
        with self._changed:
            while not self._orders:
                self._changed.wait(1.0)
            order = self._orders.popleft()
        if not isinstance(order, kind):
            raise UserError(f"the driver sent {order.kind} instead of {kind.__name__.lower()}")
        return order

    def _look(self, look: wire.Look, networks: Path) -> Prospect:
        """Find what this node would run, and say it. networks: an empty folder for a person's own networks."""
        self._node = look.node
        if look.cpus is not None:
            try:
                os.sched_setaffinity(0, look.cpus)
            except (OSError, OverflowError) as error:
                raise UserError(
                    f"this node may not use the CPUs that it is given ({error}); start the run again"
                ) from None
        try:
            options = Options.model_validate(look.options)
        except ValidationError:
            # stored_options raises an error that names the option.
            options = stored_options(Path("the driver's options"), look.options)
        if options.data and not options.data.is_dir():
            raise UserError(f"--data: there is no folder {options.data} on this node; put the data sets there")
        prospect = begin.look_ahead(_with_networks(options, look, networks))
        cpu = prospect.machine.cpu
        cpu = replace(cpu, memory_bytes=cpu.memory_bytes // look.sharing)
        prospect = replace(prospect, machine=replace(prospect.machine, cpu=cpu))
        machine = prospect.machine
        self._pipe.send(
            wire.Hello.model_construct(
                host=socket.gethostname(),
                boot_id=boot_id(),
                kernel=machine.kernel,
                architecture=kernel_machine(),
                cpu=machine.cpu,
                gpus=machine.gpus,
                refused=machine.refused,
                why_no_gpu=machine.why_no_gpu and _line(machine.why_no_gpu),
                notes=tuple(map(_line, machine.notes)),
                engine=prospect.engine.name,
                why_engine=_line(prospect.why_engine),
                fetch_bytes=prospect.fetch_bytes(),
                cells=prospect.plan.cells,
                skips=tuple(replace(skip, reason=_line(skip.reason)) for skip in prospect.plan.skips),
            )
        )
        return prospect

    def _prepare(self, cells: CellRunner, prospect: Prospect, name: str) -> None:
        if name not in prospect.images:
            self._pipe.send(wire.Prepared(image=name, digest=None, why="this node has no image of that name"))
            return
        ready, failed = cells.prepare([prospect.images[name]])
        self._ready |= ready
        digest, why = ready[name].digest if name in ready else None, failed.get(name)
        self._pipe.send(wire.Prepared(image=name, digest=digest, why=why and _line(why)))

    def _say(self, line: str) -> None:
        self._pipe.send(wire.Said(line=_line(line)))

    def _keep(self, job: Job, parcel: parcels.Parcel) -> None:
        """Hand a finished repeat over: into the spool first, since the driver may be gone."""
        attempt, _ = self._held[job]
        content = parcels.encode(replace(parcel, attempt=attempt, node=self._node))
        assert self._spool is not None
        try:
            self._spool.keep(attempt, content)
        except OSError as error:
            # The driver may still be there to take it.
            self._say(
                f"{self._spool.folder} cannot be written to ({error.strerror}): until it can, a result is lost if the driver ends "
                "before it has it; make room there"
            )
        self._pipe.send(wire.Ended(attempt=attempt), content)

    def _refuse(self, job: Job, kind: str, reason: str) -> None:
        attempt, _ = self._held[job]
        self._pipe.send(wire.Failed(attempt=attempt, reason=_line(reason)))

    def _leave(self, job: Job, reason: str) -> None:
        """A job that this machine cut goes to another node."""
        attempt, _ = self._held[job]
        self._pipe.send(wire.Returned(attempt=attempt, why=_line(reason)))

    def _return_all(self) -> None:
        """This node measures no more, and no cell is the reason: what waits and runs here goes to other nodes."""
        with self._changed:
            waiting, self._runs = list(self._runs), deque()
            self._stopped |= {attempt for attempt, _ in self._held.values()}
        for run in waiting:
            self._pipe.send(wire.Returned(attempt=run.attempt, why="its node measures no more"))

    def phase(self, job: Job, name: str) -> None:
        """Say which phase a job is in."""
        if job in self._held:
            self._pipe.send(wire.Progress(attempt=self._held[job][0], phase=name))

    def preparing(self, image: str, line: str) -> None:
        """Hand on a line of an image that is being prepared."""
        self._pipe.send(wire.Preparing(image=image, line=_line(line)))

    # --- what a CellRunner wants of its source: its threads call these, one at a time

    def next(self, now: float) -> tuple[Job, tuple[Place, ...]] | None:
        """The next run whose devices are free."""
        assert self._cells is not None
        with self._changed:
            busy = {place.board for _, held in self._held.values() for place in held}
            for run in self._runs:
                chosen = self._places(run)
                job = Job(run.cell, run.repeat)
                why = self._why_not(run, chosen)
                if why is None and (job in self._held or not busy.isdisjoint(place.board for place in chosen)):
                    continue
                self._runs.remove(run)
                if why is None:
                    self._held[job] = run.attempt, chosen
                    return job, chosen
                self._pipe.send(wire.Returned(attempt=run.attempt, why=why))
                return self.next(now)
        return None

    def _places(self, run: wire.Run) -> tuple[Place, ...]:
        assert self._cells is not None
        every = {place.uuid: place for place in places(self._cells.machine, run.cell.device_kind)}
        return tuple(every[uuid] for uuid in run.uuids or ("",) if uuid in every)

    def _why_not(self, run: wire.Run, chosen: Sequence[Place]) -> str | None:
        if run.cell.image not in self._ready:
            return f"{run.cell.image} was not prepared"
        if len(chosen) != run.cell.takes:
            return "a device that it was given is not one of this node"
        gone = self._lost.intersection(place.board for place in chosen)
        return f"{sorted(gone)[0]} fell off the bus" if gone else None

    def ended(self, job: Job) -> None:
        """An attempt has ended, however it did."""
        attempt, chosen = self._held.pop(job)
        self._last = job, attempt, chosen
        if attempt in self._stopped:
            self._stopped.discard(attempt)
            self._pipe.send(wire.Returned(attempt=attempt, why="it was stopped"))

    def put_back(self, job: Job, last: bool = False) -> None:
        """An attempt that ended with its GPU goes to another one, of any node; one that its engine or machine cut begins again here."""
        assert self._last is not None
        _, attempt, chosen = self._last
        if gone := self._lost.intersection(place.board for place in chosen):
            self._pipe.send(wire.Returned(attempt=attempt, why=f"{sorted(gone)[0]} fell off the bus"))
            return
        uuids = tuple(place.uuid for place in chosen if place.uuid)
        run = wire.Run(attempt=attempt, cell=job.cell, repeat=job.repeat, uuids=uuids)
        (self._runs.append if last else self._runs.appendleft)(run)

    def lost(self, board: str) -> None:
        """A GPU is gone."""
        self._lost.add(board)
        self._pipe.send(wire.Lost(board=board))

    def without_devices(self) -> list[Job]:
        """None: the driver decides where a job runs."""
        return []


def boot_id() -> str:
    """The machine and when it was started: two nodes with the same one are one machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _line(text: str) -> str:
    return in_a_line(text, wire.MOST_LINE)


class _Observer:
    """Hands on what the driver's display shows, not more often than it can be read."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._shown = 0.0

    def preparing(self, image: str, line: str) -> None:
        if self._is_time():
            self._agent.preparing(image, line)

    def started(self, job: Job) -> None:
        """The driver knows it."""

    def printed(self, job: Job, event: Mapping[str, Any]) -> None:
        if event["event"] == "phase" and event["state"] == "begin" and self._is_time():
            self._agent.phase(job, event["name"])

    def ended(self, outcome: Outcome) -> None:
        """The driver knows it."""

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now - self._shown < _PROGRESS_SECONDS:
            return False
        self._shown = now
        return True
