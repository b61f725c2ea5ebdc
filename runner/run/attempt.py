"""One repeat of a cell on its devices: from the engine's start, under the watchdog, to its row in the store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import known_messages
from runner.engines.base import Engine, EngineError, EngineGoneError, Exit, Prepared, Running, Slot
from runner.machine import telemetry, telemetry_gpu, telemetry_summary
from runner.plan.plan import Cell
from runner.results import store
from runner.run.dispatch import Job
from runner.run.record import Recorder, judge, wrong_device

# From the signal that makes a hanging cell print its stack to the signal that ends it.
_DUMP_SECONDS = 3.0

# If the engine did not answer when a cell was to be ended, it is called again after this time.
_KILL_AGAIN_SECONDS = 30.0

# The exit codes of a cell whose engine is shut down: SIGTERM, SIGKILL.
_ENGINE_ENDED = (128 + 15, 128 + 9)
_SHUTDOWN_SECONDS = 2.0


@dataclass(frozen=True)
class Limits:
    """After how many seconds a cell counts as hanging: since its start, and since its last output."""

    whole: float
    silence: float


@dataclass(frozen=True)
class Site:
    """What every attempt of a run has in common."""

    engine: Engine
    run: store.RunStore
    limits: Limits
    data: Path | None
    cache: Path
    monitor: telemetry.Monitor
    # The frameworks whose steps are profiled.
    profiled: frozenset[str] = frozenset()


def arguments(cell: Cell, profiled: bool = False) -> list[str]:
    """What follows `python -m bench` for a cell."""
    values = {
        "--framework": cell.framework,
        "--precision": cell.precision,
        "--preset": cell.preset,
        "--mode": cell.mode,
        "--device": cell.device_kind,
        "--devices": str(cell.devices),
        "--seed": str(cell.seed),
    }
    if cell.scaling:
        values["--scaling"] = cell.scaling
    more = ["--profile"] if profiled else []
    return ["run", cell.workload, *(word for pair in values.items() for word in pair), *more]


class Attempt:
    """One run of one cell. A thread of its own calls run(); the main thread calls watch() and stop()."""

    def __init__(self, site: Site, job: Job, slot: Slot, boards: Sequence[str], observe: Callable[[Any], None]) -> None:
        self.job = job
        self.slot = slot
        self.boards = tuple(boards)
        self.stopped = False
        # The board that fell off the bus during the cell.
        self.lost: str | None = None
        self._site = site
        self._observe = observe
        self._running: Running | None = None
        self._recording: telemetry.Recording | None = None
        # (kind, reason) where the runner ended the cell.
        self._ended_by: tuple[str, str] | None = None
        self._kill_at: float | None = None
        self._began = time.monotonic()
        self._heard = self._began
        self._lock = threading.Lock()

    def run(self, prepared: Prepared) -> tuple[str, str | None, float] | None:
        """Run to the end and store the row: (status, reason, wall seconds). None when it was stopped, or its GPU was lost.

        Raises EngineError when the engine could not do its part, and what the store raises.
        """
        site, job = self._site, self.job
        name = store.file_name(job.cell.id, job.repeat)
        recorder = Recorder(site.run.folder / "events" / f"{name}.jsonl", self._observe)
        began_unix = time.time()
        self._began = self._heard = time.monotonic()
        try:
            words = arguments(job.cell, job.cell.framework in site.profiled)
            running = site.engine.start(prepared, words, self.slot, site.run.run_id, site.data, site.cache)
        except EngineError:
            recorder.close()
            raise
        recording = site.monitor.begin(self.boards, running, self.slot.cpus)
        try:
            with self._lock:
                self._running, self._recording = running, recording
                if self.stopped:
                    running.stop()
            ended = self._follow(running, recorder)
        except BaseException as error:
            # On a full disk, for example, nobody reads the cell's output any more: it must not go on.
            if not isinstance(error, EngineError):
                _try(running.stop)
                _try(running.wait)
            raise
        finally:
            site.monitor.end(recording)
            with self._lock:
                self._running = None
            recorder.close()
        self.lost = self.lost or recording.lost or (telemetry_gpu.lost_board(self.boards) if ended.code else None)
        if self.stopped or self.lost:
            return None
        killed = ended.code in _ENGINE_ENDED and not (ended.out_of_memory or self._ended_by or recorder.problem)
        if killed and (gone := _goes_down(site.engine)):
            raise EngineGoneError(f"the engine went down under the cell ({gone})")
        wall = time.monotonic() - self._began
        recorder.row.setdefault("started_unix", began_unix)
        return self._store(prepared, recorder, recording, ended, wall)

    def watch(self, now: float) -> None:
        """The watchdog: end a cell that hangs or has lost its GPU. Never blocks for long."""
        with self._lock:
            running, recording = self._running, self._recording
        if running is None or recording is None:
            return
        if recording.lost and self.lost is None:
            self.lost, self._kill_at = recording.lost, now
        if self._kill_at is not None:
            if now >= self._kill_at:
                self._kill_at = now + _KILL_AGAIN_SECONDS
                _try(running.stop)
        elif hang := self._hang(now):
            self._ended_by, self._kill_at = hang, now + _DUMP_SECONDS
            _try(running.dump)

    def stop(self) -> None:
        """End the cell at once. Its repeat is not stored."""
        with self._lock:
            self.stopped = True
            if self._running is not None:
                _try(self._running.stop)

    def _hang(self, now: float) -> tuple[str, str] | None:
        limits = self._site.limits
        if now - self._began > limits.whole:
            return "time-limit", f"it had not ended after {limits.whole:.0f} s and was stopped"
        if now - self._heard > limits.silence:
            return "hang", f"it had printed nothing for {limits.silence:.0f} s and was stopped"
        return None

    def _follow(self, running: Running, recorder: Recorder) -> Exit:
        """Read the cell's output to its end. A broken protocol or a wrong device ends it at once: nothing after it would count."""
        useless = False
        for chunk in running.events():
            self._heard = time.monotonic()
            if useless:
                continue
            checked = recorder.environment is not None
            recorder.feed(chunk)
            wrong = not checked and recorder.environment is not None and self._wrong_device(recorder)
            useless = recorder.problem is not None or wrong
            if useless:
                running.stop()
        return running.wait()

    def _wrong_device(self, recorder: Recorder) -> bool:
        """Whether the cell computes on another device than it was given. Its row will say so."""
        if wrong := wrong_device(recorder, self.job.cell, self.slot.device_uuids):
            with self._lock:
                self._ended_by = self._ended_by or wrong
        return wrong is not None

    def _store(
        self, prepared: Prepared, recorder: Recorder, recording: telemetry.Recording, ended: Exit, wall: float
    ) -> tuple[str, str | None, float]:
        cell = self.job.cell
        status, kind, reason = judge(recorder, cell, ended, self._ended_by, self.slot.device_uuids)
        if status != "ok" and recording.xids:
            kind, reason = "xid", f"{_xid_sentence(recording.xids)}; the cell: {reason}"
        advice = (
            known_messages.xid(recording.xids[0][1])[1]
            if recording.xids
            else known_messages.hint(kind, reason, ended.log_tail)
        )
        if recording.fault:
            recorder.rows["left_out"].append({"what": "telemetry, in part", "reason": recording.fault})
        rows = telemetry_summary.on_the_cells_clock(recording.rows, recorder.row["started_unix"])
        tables = recorder.tables(
            cell,
            (status, kind, reason),
            engine=self._site.engine.name,
            image_digest=prepared.digest,
            given_uuids=list(self.slot.device_uuids),
            log_tail=ended.log_tail,
            exit_code=ended.code,
            wall_seconds=wall,
            hint=advice if status != "ok" or recording.xids else None,
            **telemetry_summary.summary(rows, recorder.rows["samples"], recording.step),
        )
        tables["telemetry"] = rows
        name = store.file_name(cell.id, self.job.repeat)
        store.write_bytes(self._site.run.folder / "logs" / f"{name}.log", ended.log_tail.encode("utf-8", "replace"))
        self._site.run.write_repeat(cell.id, self.job.repeat, tables)
        return status, reason, wall


def _goes_down(engine: Engine) -> str | None:
    """Why the engine is gone, or goes within a few seconds: a shutdown ends the containers first. None when it stays."""
    end = time.monotonic() + _SHUTDOWN_SECONDS
    while (gone := engine.unavailable()) is None and time.monotonic() < end:
        time.sleep(0.2)
    return gone


def _xid_sentence(xids: Sequence[tuple[str, int]]) -> str:
    return "the NVIDIA driver reported " + ", ".join(
        f"Xid {n} ({known_messages.xid(n)[0]})" for _, n in dict.fromkeys(xids)
    )


def _try(action: Callable[[], object]) -> None:
    """If the engine does not answer, its cells stay. The next sweep removes them."""
    with contextlib.suppress(EngineError):
        action()
