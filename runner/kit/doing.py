"""Does the steps: starts each as a process, watches it, and keeps what it left."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from runner.engines import jit_cache
from runner.engines.process import installed
from runner.engines.process.process import LocalRunning, start_process
from runner.engines.slots import Exit, Slot
from runner.kit import pack
from runner.kit.command_line import say
from runner.kit.refusal import refusal
from runner.kit.steps import CHECK, EVENTS, EVENTS_MODULES, Step, arguments
from runner.machine import telemetry
from runner.machine.devices import Gpu
from runner.text import in_a_line

# A step that runs longer hangs. It is below the time that is given by default, so that one step cannot take all of it.
STEP_SECONDS = 300.0
# With less time left, no further step is begun: it would be ended before it has a result.
LEAST_SECONDS = 10.0
# The limits of runner.kit.archive: of one step, and of all steps together, so that their telemetry still fits into the archive.
MOST_OUTPUT_BYTES = 64 * 1024 * 1024
MOST_OUTPUTS_BYTES = 256 * 1024 * 1024
LEAST_OUTPUT_BYTES = 64 * 1024
MOST_TELEMETRY_BYTES = 128 * 1024 * 1024
LEAST_TELEMETRY_BYTES = 4 * 1024
# So few rows are kept in any case.
_FEWEST_ROWS = 10
MOST_XIDS = 1000
MOST_FAULT = 300

# Checks are not timed, so several may share a GPU with this much memory.
_SHARED_GPU_BYTES = 40e9
_MOST_CHECKS_AT_ONCE = 4
_CPUS_OF_A_CHECK = 4

# The kit's cache is not the installation's.
_KEPT = [*installed.KEPT, "PYTHONDONTWRITEBYTECODE"]

# A step that the end of the time has stopped has this file in its folder.
_CUT_OFF = "cut-off"


@dataclass(frozen=True)
class Interpreter:
    """The start of a step: an interpreter and the first of its arguments."""

    command: tuple[str, ...]


@dataclass(frozen=True)
class Site:
    """The place of the steps, and the folder of their results."""

    python: str
    slot: Slot
    boards: tuple[str, ...]
    out: Path
    cache: Path
    monitor: telemetry.Monitor
    # The time of time.monotonic() after which nothing runs.
    deadline: float

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()


class Started:
    """The processes of the steps that run now. Once stopped, no further one is begun."""

    def __init__(self) -> None:
        self.stopped = False
        self._live: set[LocalRunning] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def watched(self, running: LocalRunning) -> Iterator[None]:
        with self._lock:
            self._live.add(running)
            if self.stopped:
                running.stop()
        try:
            yield
        finally:
            with self._lock:
                self._live.remove(running)

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
            for running in self._live:
                running.stop()


def do_steps(site: Site, steps: Sequence[Step], gpu: Gpu | None) -> bool:
    """Do the steps, as far as the time goes; True when the user interrupted them."""
    at_once = _checks_at_once(site, gpu)
    started = Started()
    try:
        for group in _groups(steps):
            with ThreadPoolExecutor(at_once if group[0].kind == CHECK else 1) as pool:
                try:
                    list(pool.map(partial(_one, site, started), group))
                except BaseException:
                    started.stop()
                    raise
    except KeyboardInterrupt:
        return True
    return False


def _checks_at_once(site: Site, gpu: Gpu | None) -> int:
    if gpu is None or gpu.memory_bytes is None or gpu.memory_bytes < _SHARED_GPU_BYTES:
        return 1
    return max(1, min(_MOST_CHECKS_AT_ONCE, len(site.slot.cpus) // _CPUS_OF_A_CHECK))


def _groups(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Checks that follow one another are a group. Everything else is timed, so it is alone."""
    group: list[Step] = []
    for step in steps:
        if group and CHECK in (step.kind, group[-1].kind) and step.kind != group[-1].kind:
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def _one(site: Site, started: Started, step: Step) -> None:
    """Do one step and keep what it left, unless the time ends before it does."""
    if site.seconds_left < LEAST_SECONDS or started.stopped:
        return
    folder = site.out / "steps" / step.name
    folder.mkdir(parents=True, exist_ok=True)
    limit = min(STEP_SECONDS, site.seconds_left)
    cached = jit_cache.size(site.cache) if site.boards else None
    began, began_unix = time.monotonic(), time.time()
    words = [step.workload, step.precision] if step.kind == EVENTS else arguments(step, site.slot.device_kind)
    running = start_process(_command(site, step), words, site.slot, "gpu-kit", None, site.cache, keep=_KEPT)
    recording = site.monitor.begin(site.boards, running, site.slot.cpus, site.slot.device_uuids)
    try:
        with started.watched(running):
            ended = _follow(running, folder / "output", limit, _most_output(site.out))
    finally:
        site.monitor.end(recording)
    seconds = time.monotonic() - began
    stopped = seconds >= limit and ended.code != 0
    if not started.stopped and stopped and _goes_on(folder, seconds):
        say(f"{seconds:5.0f} s  {step}: cut off, because the time was over; the next start does it again")
    elif not started.stopped:
        record = {
            **asdict(step),
            "code": ended.code,
            "out_of_memory": ended.out_of_memory,
            "ended_by": ["time-limit", f"it had not ended after {seconds:.0f} s and was stopped"] if stopped else None,
            "started_unix": began_unix,
            "wall_seconds": seconds,
            "uuids": list(site.slot.device_uuids),
            "xids": [(board, number) for board, number in recording.xids[:MOST_XIDS] if 0 <= number < 2**31],
            "lost": recording.lost,
            "fault": recording.fault and in_a_line(recording.fault[:MOST_FAULT], MOST_FAULT)[:MOST_FAULT],
            "users": recording.users.state(),
            "jit_cache_grew_bytes": jit_cache.grew(site.cache, cached),
        }
        _keep(folder, record, recording, ended)
        say(f"{seconds:5.0f} s  {step}: {outcome(folder)}")


def _goes_on(folder: Path, seconds: float) -> bool:
    """True if the next start does a stopped step again: once, so that a step that hangs does not keep all later ones from their turn."""
    mark = folder / _CUT_OFF
    if seconds >= STEP_SECONDS or mark.exists():
        return False
    mark.touch()
    return True


def _most_output(out: Path) -> int:
    """How many bytes the next step may print: no more than an archive with the outputs that there are can take."""
    outputs = sum(path.stat().st_size for path in (out / "steps").glob("*/output"))
    return max(LEAST_OUTPUT_BYTES, min(MOST_OUTPUT_BYTES, MOST_OUTPUTS_BYTES - outputs))


def _follow(running: LocalRunning, path: Path, limit: float, most: int) -> Exit:
    """Write what a step prints to a file, and end the step after `limit` seconds or `most` bytes."""
    timer = threading.Timer(limit, running.stop)
    timer.daemon = True
    timer.start()
    try:
        with open(path, "wb") as output:
            for chunk in running.events():
                # The rest is read, too, until the step has ended; none of it is kept.
                output.write(chunk[: most - output.tell()])
                if output.tell() >= most:
                    running.stop()
        return running.wait()
    except BaseException:
        running.stop()
        running.wait()
        raise
    finally:
        timer.cancel()


def _telemetry_that_fits(steps: Path, recording: telemetry.Recording) -> tuple[bytes, float]:
    """The rows of a step, as lines, and the seconds between them: so few that an archive with what there is takes them all."""
    room = max(
        LEAST_TELEMETRY_BYTES,
        MOST_TELEMETRY_BYTES - sum(path.stat().st_size for path in steps.glob("*/telemetry.jsonl")),
    )
    rows, seconds = recording.rows, recording.step
    while len(lines := _lines(rows)) > room and len(rows) > _FEWEST_ROWS:
        seconds *= 2
        rows = telemetry.thinned(rows, seconds)
    return lines, seconds


def _lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(pack.document(row) + b"\n" for row in rows)


def _keep(folder: Path, record: dict[str, Any], recording: telemetry.Recording, ended: Exit) -> None:
    rows, record["row_seconds"] = _telemetry_that_fits(folder.parent, recording)
    pack.write(folder / "telemetry.jsonl", rows)
    pack.write(folder / "log.txt", ended.log_tail.encode("utf-8", "replace"))
    # Written last: a step is done when this file is there.
    pack.write(folder / "step.json", pack.document(record))


def _command(site: Site, step: Step) -> Interpreter:
    module = EVENTS_MODULES[step.framework] if step.kind == EVENTS else "bench"
    return Interpreter((site.python, "-m", module))


def outcome(folder: Path) -> str:
    """How the step of this folder ended, in a few words that begin with ok, refused or FAILED."""
    record = json.loads((folder / "step.json").read_bytes())
    output, log = (folder / "output").read_bytes(), (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
    if record["code"] and (reason := refusal(record["kind"], output, log)):
        return f"refused: {in_a_line(reason, 200)}"
    ended = f"FAILED (exit code {record['code']})" if record["code"] else "ok"
    if record["ended_by"]:
        ended = f"FAILED: {record['ended_by'][1]}"
    if record["kind"] == CHECK:
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, RecursionError):
            verdict = json.loads(output)
            failed = f"; {in_a_line(str(verdict['failed'][0]), 120)}" if verdict["failed"] else ""
            return f"{ended}, at {float(verdict['worst']):.2f} of its bound{failed}"
    return ended
