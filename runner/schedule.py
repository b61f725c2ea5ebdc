"""Runs the planned cells: a slot at a time, repeats in shuffled blocks, each stored the moment it ends."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from runner import store
from runner.engines.base import Engine, EngineError, Exit, Prepared, Running, Slot
from runner.hardware import Machine
from runner.plan import Cell
from runner.record import Recorder, judge

# What the cells may use of the host's memory together; the rest is the runner's and the system's.
_MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Job:
    """One repeat of one cell."""

    cell: Cell
    repeat: int


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    status: str
    reason: str | None
    wall_seconds: float


class Observer(Protocol):
    """Is told what happens, from the threads of the slots."""

    def preparing(self, image: str, line: str) -> None: ...

    def started(self, job: Job) -> None: ...

    def told(self, job: Job, event: Mapping[str, Any]) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...


def blocks(cells: Sequence[Cell], repeats: int, seed: int) -> list[Job]:
    """Every cell once a block, each block in an order of its own: so heat and drift are not read as a difference of cells."""
    generator = random.Random(seed)
    jobs = []
    for repeat in range(1, repeats + 1):
        order = list(cells)
        generator.shuffle(order)
        jobs += [Job(cell, repeat) for cell in order]
    return jobs


def slots(machine: Machine, cpu_cells: bool) -> list[Slot]:
    """A slot a GPU, each with its share of the CPUs near it; one slot for the CPU, alone on the machine.

    GPU slots and the CPU slot never run at once (run_jobs drains one kind before the other): a CPU cell would take the GPU
    cells' cores.
    """
    found = []
    memory = int(_MEMORY_SHARE * machine.cpu.memory_bytes)
    neighbours: dict[tuple[int, ...], list[str]] = {}
    for gpu in machine.gpus:
        neighbours.setdefault(gpu.cpus, []).append(gpu.uuid)
    for cpus, uuids in neighbours.items():
        share = max(1, len(cpus) // len(uuids))
        for number, uuid in enumerate(uuids):
            near = cpus[number * share : (number + 1) * share] or cpus
            found.append(Slot("cuda", (uuid,), near, memory // len(machine.gpus)))
    if cpu_cells:
        found.append(Slot("cpu", (), machine.cpu.cpus, memory))
    return found


def arguments(cell: Cell) -> list[str]:
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
    return ["run", cell.workload, *(word for pair in values.items() for word in pair)]


@dataclass
class Matrix:
    """The running of one matrix. `models` tells the model of each GPU's UUID."""

    engine: Engine
    run: store.RunStore
    observer: Observer
    time_limit: float
    data: Path | None
    cache: Path
    models: Mapping[str, str]
    outcomes: list[Outcome] = field(default_factory=list)
    _jobs: list[Job] = field(default_factory=list)
    _running: set[Any] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _broken: BaseException | None = None

    def prepare(self, images: Iterable[Any]) -> tuple[dict[str, Prepared], dict[str, str]]:
        """Make the images ready, before anything is measured; (ready ones, the others' reasons)."""
        ready: dict[str, Prepared] = {}
        failed: dict[str, str] = {}
        for image in images:
            if self._stopped.is_set():
                break
            try:
                ready[image.name] = self.engine.prepare(image, partial(self.observer.preparing, image.name))
            except EngineError as error:
                failed[image.name] = str(error)
        return ready, failed

    def run_jobs(self, jobs: Sequence[Job], on: Sequence[Slot], ready: Mapping[str, Prepared]) -> None:
        """Run the jobs; returns when all have ended or stop() was called. Raises what broke the store."""
        for kind in ("cuda", "cpu"):
            self._jobs = [job for job in jobs if job.cell.device_kind == kind]
            threads = [
                threading.Thread(target=self._work, args=(slot, ready), name=f"slot-{number}")
                for number, slot in enumerate(on)
                if slot.device_kind == kind
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # a join without a limit would hold back Ctrl-C
                    thread.join(0.2)
            if self._broken:
                raise self._broken

    def stop(self) -> None:
        """End every running cell at once and start no more. What they measured so far is not a finished repeat."""
        self._stopped.set()
        with self._lock:
            running = list(self._running)
        for process in running:
            process.stop()

    def fail(self, job: Job, reason: str) -> None:
        """Store a job that could not be started."""
        row = asdict(job.cell) | {
            "status": "failed",
            "error_kind": "engine",
            "reason": reason,
            "engine": self.engine.name,
        }
        self.run.write_repeat(job.cell.id, job.repeat, {"cells": [row]})
        self._tell(Outcome(job, "failed", reason, 0.0))

    def _tell(self, outcome: Outcome) -> None:
        with self._lock:
            self.outcomes.append(outcome)
        self.observer.ended(outcome)

    def _next(self, slot: Slot) -> Job | None:
        model = self.models[slot.device_uuids[0]] if slot.device_uuids else None
        with self._lock:
            for job in self._jobs:
                if model is None or job.cell.device_model == model:
                    self._jobs.remove(job)
                    return job
        return None

    def _work(self, slot: Slot, ready: Mapping[str, Prepared]) -> None:
        while not self._stopped.is_set() and (job := self._next(slot)):
            try:
                try:
                    self._run(job, slot, ready[job.cell.image])
                except EngineError as error:
                    if not self._stopped.is_set():
                        self.fail(job, str(error))
            except BaseException as error:  # told by run_jobs in the main thread
                self._broken = error
                self.stop()

    def _run(self, job: Job, slot: Slot, prepared: Prepared) -> None:
        name = store.file_name(job.cell.id, job.repeat)
        self.observer.started(job)
        recorder = Recorder(self.run.folder / "events" / f"{name}.jsonl", lambda event: self.observer.told(job, event))
        began, began_unix = time.monotonic(), time.time()
        try:
            process = self.engine.start(prepared, arguments(job.cell), slot, self.run.run_id, self.data, self.cache)
        except EngineError:
            recorder.close()
            raise
        with self._lock:
            self._running.add(process)
        if self._stopped.is_set():
            process.stop()
        timed_out = threading.Event()

        def out_of_time() -> None:
            timed_out.set()
            process.stop()

        timer = threading.Timer(self.time_limit, out_of_time)
        timer.daemon = True
        timer.start()
        try:
            ended = self._follow(process, recorder)
        finally:
            timer.cancel()
            recorder.close()
            with self._lock:
                self._running.discard(process)
        if self._stopped.is_set():
            return
        wall = time.monotonic() - began
        limit = self.time_limit if timed_out.is_set() else None
        self._store(job, slot, prepared, recorder, ended, limit, wall, began_unix)

    def _follow(self, process: Running, recorder: Recorder) -> Exit:
        """Read the cell's output to its end. A broken protocol ends the cell at once: nothing after it would count."""
        for chunk in process.events():
            if recorder.problem is None:
                recorder.feed(chunk)
                if recorder.problem is not None:
                    process.stop()
        return process.wait()

    def _store(
        self,
        job: Job,
        slot: Slot,
        prepared: Prepared,
        recorder: Recorder,
        ended: Exit,
        limit: float | None,
        wall: float,
        began_unix: float,
    ) -> None:
        outcome = judge(recorder, job.cell, ended, limit, slot.device_uuids)
        recorder.row.setdefault("started_unix", began_unix)
        tables = recorder.tables(
            job.cell,
            outcome,
            engine=self.engine.name,
            image_digest=prepared.digest,
            log_tail=ended.log_tail,
            exit_code=ended.code,
            wall_seconds=wall,
        )
        name = store.file_name(job.cell.id, job.repeat)
        store.write_bytes(self.run.folder / "logs" / f"{name}.log", ended.log_tail.encode("utf-8", "replace"))
        self.run.write_repeat(job.cell.id, job.repeat, tables)
        self._tell(Outcome(job, outcome[0], outcome[2], wall))
