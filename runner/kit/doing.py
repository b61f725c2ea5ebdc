"""Does the steps. A cell is an attempt as of any run, which leaves a parcel; checks and windows are processes whose end is noted."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from runner.admission.record import Recorder
from runner.engines.process import installed
from runner.engines.process.process import LocalRunning, start_process
from runner.engines.slots import LOG_TAIL_BYTES, Slot
from runner.errors import EngineError
from runner.kit import pack
from runner.kit.agreement import energies
from runner.kit.command_line import say
from runner.kit.refusal import refusal
from runner.kit.steps import CELL, CHECK, EVENTS, EVENTS_MODULES, MOST_OUTPUT_BYTES, KitStep, check_arguments
from runner.machine import telemetry
from runner.machine.devices import Gpu
from runner.results.parcel import MOST_REASON, Parcel, encode
from runner.run.attempt import Attempt, AttemptContext, Limits
from runner.run.dispatch import Job
from runner.text import in_a_line

if TYPE_CHECKING:
    from runner.engines.base import Engine, ReadyImage
    from runner.plan.combination import Cell
    from runner.results.store import RunStore

# A step that runs longer hangs. It is below the time that is given by default, so that one step cannot take all of it.
STEP_SECONDS = 300.0
# With less time left, no further step is begun: it would be ended before it has a result.
LEAST_SECONDS = 10.0
# The watchdog looks so often. An attempt that it ends prints its stack first.
_WATCH_SECONDS = 0.5
_DUMP_SECONDS = 3.0

# Checks are not timed, so several may share a GPU with this much memory.
_SHARED_GPU_BYTES = 40e9
_MOST_CHECKS_AT_ONCE = 4
_CPUS_OF_A_CHECK = 4

# The kit's cache is not the installation's.
_KEPT = [*installed.KEPT, "PYTHONDONTWRITEBYTECODE"]

_LABEL = "gpu-kit"


@dataclass(frozen=True)
class StepInterpreter:
    """The user's Python as an image that is ready to run: what starts it, and the digest that stands for it."""

    command: tuple[str, ...]
    digest: str = ""
    # It is of no catalog.
    image: None = None


class InterpreterEngine:
    """The engine `host`, as far as an attempt needs one."""

    name = installed.ENGINE

    def unavailable(self) -> None:
        return None

    def answer(self) -> None:
        return None

    def start(
        self, prepared: StepInterpreter, words: Sequence[str], slot: Slot, label: str, data: Path | None, cache: Path
    ) -> LocalRunning:
        return start_process(prepared, words, slot, label, data, cache, keep=_KEPT)


@dataclass
class Doer:
    """Does steps one after another, and checks side by side. Once stopped, it begins no further one."""

    out: Path
    interpreter: StepInterpreter
    cells: Mapping[KitStep, Cell]
    slot: Slot
    gpu: Gpu | None
    monitor: telemetry.Monitor
    # The time of time.monotonic() after which nothing runs.
    deadline: float
    # (framework, workload) -> the digest of the code that its cells run.
    code: Mapping[tuple[str, str], str]
    _stopped: threading.Event = field(default_factory=threading.Event)
    _live: set[LocalRunning | Attempt] = field(default_factory=set)

    def do(self, steps: Sequence[KitStep]) -> bool:
        """Do the steps, as far as the time goes; True when the user interrupted them."""
        try:
            for group in _groups(steps):
                with ThreadPoolExecutor(self._at_once() if group[0].kind == CHECK else 1) as pool:
                    try:
                        self._watch([pool.submit(self._one, step) for step in group])
                    except BaseException:
                        self._stopped.set()
                        for running in list(self._live):
                            running.stop()
                        raise
        except KeyboardInterrupt:
            return True
        return False

    def _watch(self, futures: Sequence[Any]) -> None:
        waiting = set(futures)
        while waiting:
            ended, waiting = wait(waiting, _WATCH_SECONDS)
            for future in ended:
                future.result()
            for attempt in list(self._live):
                if isinstance(attempt, Attempt):
                    attempt.watch(time.monotonic())

    def _at_once(self) -> int:
        memory = self.gpu.memory_bytes if self.gpu else None
        if memory is None or memory < _SHARED_GPU_BYTES:
            return 1
        return max(1, min(_MOST_CHECKS_AT_ONCE, len(self.slot.cpus) // _CPUS_OF_A_CHECK))

    def _one(self, step: KitStep) -> None:
        """Do one step and keep what it left, unless the time ends before it does."""
        left = self.deadline - time.monotonic()
        if left < LEAST_SECONDS or self._stopped.is_set():
            return
        limit = min(STEP_SECONDS, left)
        if step.kind == CELL:
            self._measure(step, limit)
        else:
            self._note(step, limit)

    @contextlib.contextmanager
    def _alive(self, running: LocalRunning | Attempt) -> Iterator[None]:
        """Have it stopped with the others."""
        self._live.add(running)
        if self._stopped.is_set():
            running.stop()
        try:
            yield
        finally:
            self._live.discard(running)

    def _measure(self, step: KitStep, limit: float) -> None:
        began, boards = time.monotonic(), (self.gpu.board,) if self.gpu else ()
        limit = max(limit - _DUMP_SECONDS, 0.0)
        # The attempt takes of a run its id only.
        run = cast("RunStore", SimpleNamespace(run_id=_LABEL))
        engine, limits = cast("Engine", InterpreterEngine()), Limits(limit, limit)
        site = AttemptContext(
            engine,
            run,
            limits,
            None,
            self.monitor,
            code=self.code,
            keep=lambda _, parcel: self._keep_parcel(step, parcel),
        )
        job = Job(self.cells[step], step.repeat)
        attempt = Attempt(site, job, self.slot, boards, lambda _: None)
        ended_by = "gpu-lost", ""
        with self._alive(attempt):
            try:
                if attempt.run(cast("ReadyImage", self.interpreter)) or attempt.stopped:
                    return
                ended_by = "gpu-lost", f"{attempt.lost} fell off the bus"
            except EngineError as error:
                ended_by = "engine", str(error)[:MOST_REASON]
        lost = Parcel(
            job.cell.id,
            step.repeat,
            site.engine.name,
            image_digest=self.interpreter.digest,
            uuids=self.slot.device_uuids,
            boards=boards,
            ended_by=ended_by,
            wall_seconds=time.monotonic() - began,
        )
        self._keep_parcel(step, lost)

    def _keep_parcel(self, step: KitStep, parcel: Parcel) -> None:
        seconds = parcel.wall_seconds or 0.0
        if parcel.ended_by and parcel.ended_by[0] == "time-limit" and self._goes_on(step, seconds):
            return
        content = encode(parcel)
        if pack.size(self.out) + len(content) > pack.MOST_BYTES:
            full = "disk", f"the archive would have more than {pack.MOST_BYTES} bytes with what it printed"
            parcel = replace(parcel, ended_by=full, tape=(), telemetry=())
            content = encode(parcel)
        self._keep(step, seconds, outcome_of_cell(parcel), content, energies(parcel.telemetry))

    def _goes_on(self, step: KitStep, seconds: float) -> bool:
        """True if the next start does a stopped step again: once, so that one that hangs does not keep the others from their turn."""
        mark = self.out / "steps" / f"{step.name}.cut-off"
        if seconds + _DUMP_SECONDS + _WATCH_SECONDS >= STEP_SECONDS or mark.exists():
            return False
        mark.touch()
        say(f"{seconds:5.0f} s  {step}: cut off, because the time was over; the next start does it again")
        return True

    def _note(self, step: KitStep, limit: float) -> None:
        """Do a check, or hold windows against CUDA's events."""
        began = time.monotonic()
        module = EVENTS_MODULES[step.framework] if step.kind == EVENTS else "bench"
        words = [step.workload, step.precision] if step.kind == EVENTS else check_arguments(step, self.slot.device_kind)
        command = StepInterpreter((self.interpreter.command[0], "-m", module))
        cache = self.out / "cache" / "checks"
        running = start_process(command, words, self.slot, _LABEL, None, cache, keep=_KEPT)
        timer = threading.Timer(limit, running.stop)
        timer.daemon = True
        timer.start()
        output = bytearray()
        try:
            with self._alive(running):
                for chunk in running.events():
                    # The rest is read, too, until the step has ended; none of it is kept.
                    output += chunk[: MOST_OUTPUT_BYTES - len(output)]
                    if len(output) >= MOST_OUTPUT_BYTES:
                        running.stop()
            ended = running.wait()
        except BaseException:
            running.stop()
            running.wait()
            raise
        finally:
            timer.cancel()
        seconds = time.monotonic() - began
        stopped = seconds >= limit and ended.code != 0
        if self._stopped.is_set() or (stopped and self._goes_on(step, seconds)):
            return
        record = {
            "code": ended.code,
            "stopped": f"it had not ended after {seconds:.0f} s and was stopped" if stopped else None,
            "output": output.decode("utf-8", "replace"),
            "log": ended.log_tail[-LOG_TAIL_BYTES:],
        }
        self._keep(step, seconds, outcome_of(step, record), pack.document(record), {})

    def _keep(
        self, step: KitStep, seconds: float, outcome: str, content: bytes, sums: Mapping[str, tuple[float, float]]
    ) -> None:
        said = {"outcome": outcome, "energy_joules": sums}
        pack.write(pack.said_path(self.out, step), pack.document(said))
        # Written last: a step is done when this file is there.
        pack.write(pack.path_of(self.out, step), content)
        say(f"{seconds:5.0f} s  {step}: {outcome}")


def _groups(steps: Sequence[KitStep]) -> Iterator[list[KitStep]]:
    """Checks that follow one another are a group. Everything else is timed, so it is alone."""
    group: list[KitStep] = []
    for step in steps:
        if group and CHECK in (step.kind, group[-1].kind) and step.kind != group[-1].kind:
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def outcome_of_cell(parcel: Parcel) -> str:
    """How a cell ended, in a few words that begin with ok, refused or FAILED. The import judges it as a result."""
    if parcel.ended_by:
        return f"FAILED: {in_a_line(parcel.ended_by[1], 200)}"
    recorder = Recorder()
    for at, piece in parcel.tape:
        recorder.feed(piece, at)
    recorder.close()
    if recorder.problem or recorder.torn:
        return f"FAILED: its output broke the protocol: {in_a_line(str(recorder.problem or recorder.torn), 200)}"
    if error := recorder.error:
        word = "refused" if error["kind"] == "unsupported" else "FAILED"
        return f"{word}: {in_a_line(str(error['message']), 200)}"
    return f"FAILED (exit code {parcel.code})" if parcel.code else "ok"


def outcome_of(step: KitStep, record: Mapping[str, Any]) -> str:
    """The same of another step."""
    if record["code"] and (reason := refusal(record["log"])):
        return f"refused: {in_a_line(reason, 200)}"
    ended = f"FAILED (exit code {record['code']})" if record["code"] else "ok"
    if record["stopped"]:
        ended = f"FAILED: {record['stopped']}"
    if step.kind == CHECK:
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, RecursionError):
            verdict = json.loads(record["output"])
            failed = f"; {in_a_line(str(verdict['failed'][0]), 120)}" if verdict["failed"] else ""
            return f"{ended}, at {float(verdict['worst']):.2f} of its bound{failed}"
    return ended
