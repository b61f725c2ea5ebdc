"""Does the steps one after another. A cell runs as in any run; the other kind is a process that prints one answer. Each leaves a parcel."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.engines.base import ReadyImage
from runner.engines.probe import HELD_BY_OTHERS, OPENS_NONE, printed
from runner.engines.process.installed import InterpreterEngine
from runner.errors import HOST_FAULTS, HostFaultError, system_fault
from runner.kit import pack
from runner.kit.agreement import energies
from runner.kit.command_line import say
from runner.kit.step_outcome import MOST_OUTPUT_BYTES, first_look
from runner.kit.steps import EVENTS_MODULES, KitStep
from runner.machine import telemetry
from runner.machine.devices import Machine
from runner.results.on_disk.whole import replace_bytes
from runner.results.parcel import MOST_LOG, Parcel, encode
from runner.results.store import RunStore
from runner.run.attempt import AttemptContext, Limits
from runner.run.dispatch import Job, places
from runner.run.schedule import CellRunner, slot_of

# A step that runs longer hangs. It is below the time that is given by default, so that one step cannot take all of it.
STEP_SECONDS = 300.0
# With less time left, no further step is begun: it would be ended before it has a result.
LEAST_SECONDS = 10.0
# A step that was stopped ends so much before its limit at most.
_SLACK_SECONDS = 0.5
# The reason for the steps that are left when somebody ends the kit.
INTERRUPTED = "it was interrupted"
# From the signal that makes a hanging cell print its stack to the signal that ends it.
_DUMP_SECONDS = 3.0


class _Silent:
    """Gets what happens to cells: the kit speaks of a step when it has its parcel."""

    def preparing(self, *_: Any, **__: Any) -> None: ...

    started = printed = ended = preparing


@dataclass
class Doer:
    """Does steps one after another. Once its GPU is lost, it begins no further one, and none of a framework that opens no GPU."""

    out: Path
    engine: InterpreterEngine
    ready: ReadyImage
    # With the GPU that is measured only.
    machine: Machine
    monitor: telemetry.Monitor
    # The time of time.monotonic() after which nothing runs.
    deadline: float
    # (framework, workload) -> the digest of the code that its cells run.
    code: Mapping[tuple[str, str], str]
    # Why no GPU is there any more.
    gone: str | None = None
    # The frameworks that open no GPU where others may -> the reason.
    unable: dict[str, str] = field(default_factory=dict)
    # The frameworks of which a step is left because others hold the GPU or fill its memory -> the reason. The next step asks again.
    held: dict[str, str] = field(default_factory=dict)
    # The GPU, once it has fallen off the bus.
    _lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = RunStore(self.out)
        self.slot = slot_of(self.machine, places(self.machine, "cuda" if self.machine.gpus else "cpu")[:1])

    def do(self, steps: Sequence[KitStep]) -> str:
        """Do the steps, as far as the time goes; the reason for which others are not done."""
        over = False
        try:
            for step in steps:
                if step.cell.framework in self.unable:
                    continue
                if over := (limit := self._limit()) is None:
                    break
                (self._measure if step.kind == "cell" else self._print)(step, limit)
        except KeyboardInterrupt:
            return INTERRUPTED
        except HostFaultError as error:
            return str(error)
        except OSError as error:
            if error.errno not in HOST_FAULTS:
                raise
            return system_fault(error)
        return self.gone or "; ".join(
            [*self.why_left.values(), *(["the time was over"] if over or not self.why_left else [])]
        )

    @property
    def why_left(self) -> dict[str, str]:
        """Framework -> why steps of it are left that had their turn."""
        return self.held | self.unable

    def _limit(self) -> float | None:
        """The seconds that the next step may take; None where none begins any more."""
        left = self.deadline - time.monotonic()
        ended = left < LEAST_SECONDS or self.gone
        return None if ended else min(STEP_SECONDS, left)

    def _measure(self, step: KitStep, limit: float) -> None:
        """Run a cell."""
        limit = max(limit - _DUMP_SECONDS, 0.0)
        site = AttemptContext(
            self.engine,
            self.run,
            Limits(limit, limit),
            None,
            self.monitor,
            code=self.code,
            keep=lambda _, parcel: self._keep(step, parcel),
        )
        cells = CellRunner(site, self.machine, _Silent(), lambda _: limit, lost=self._lost)
        cells.run_jobs([Job(step.cell, step.repeat)], {step.cell.image: self.ready})

    def _print(self, step: KitStep, limit: float) -> None:
        """Hold windows against CUDA's events."""
        cell, began = step.cell, time.time()
        program = replace(self.ready, command=(*self.ready.command[:-1], EVENTS_MODULES[cell.framework]))
        words, cache = [cell.workload, cell.precision], self.out / "cache" / step.kind
        running = self.engine.start(program, words, self.slot, self.run.run_id, None, cache)
        answer = printed(running, limit, MOST_OUTPUT_BYTES)
        hung = "time-limit", f"it had not ended after {answer.seconds:.0f} s and was stopped"
        parcel = Parcel(
            cell.id,
            step.repeat,
            self.engine.name,
            image_digest=self.ready.digest,
            uuids=self.slot.device_uuids,
            cpus=self.slot.threads,
            code=answer.ended.code,
            out_of_memory=answer.ended.out_of_memory,
            ended_by=hung if answer.late and answer.ended.code else None,
            started_unix=began,
            wall_seconds=answer.seconds,
            tape=((time.monotonic(), answer.output),) if answer.output else (),
            log=answer.ended.log_tail[-MOST_LOG:],
        )
        self._keep(step, parcel)

    def _keep(self, step: KitStep, parcel: Parcel) -> None:
        """Write what a step left, unless the time ended before it did."""
        seconds = parcel.wall_seconds or 0.0
        if parcel.ended_by and parcel.ended_by[0] == "time-limit" and self._goes_on(step, seconds):
            return
        content = encode(parcel)
        if pack.size(self.out) + len(content) > pack.MOST_BYTES:
            full = "disk", f"the archive would have more than {pack.MOST_BYTES} bytes with what it printed"
            parcel = replace(parcel, ended_by=full, tape=(), telemetry=())
            content = encode(parcel)
        status, said, figures = first_look(step, parcel)
        if status == "no-device" and OPENS_NONE in said and not self._lost:
            self.unable[step.cell.framework] = said
            say(f"{seconds:5.0f} s  {step}: {said}")
            return
        if status == "no-device" and re.search(HELD_BY_OTHERS, said) and not self._lost:
            self.held[step.cell.framework] = said
            say(f"{seconds:5.0f} s  {step}: {said}")
            return
        if self._lost or status == "no-device":
            # The step is left for the start after the remedy.
            self.gone = "its GPU fell off the bus" if self._lost else f"no GPU can be opened ({said})"
            say(f"{seconds:5.0f} s  {step}: {self.gone}")
            return
        summary = {"status": status, "energy_joules": energies(parcel.telemetry), **figures}
        replace_bytes(pack.said_path(self.out, step), pack.document(summary))
        # Written last: a step is done when this file is there.
        replace_bytes(pack.path_of(self.out, step), content)
        say(f"{seconds:5.0f} s  {step}: {status}{said and f': {said}'}")

    def _goes_on(self, step: KitStep, seconds: float) -> bool:
        """True if the next start does a stopped step again: once, so that one that hangs does not keep the others from their turn."""
        mark = self.out / "steps" / f"{step.name}.cut-off"
        if seconds + _DUMP_SECONDS + _SLACK_SECONDS >= STEP_SECONDS or mark.exists():
            return False
        mark.touch()
        say(f"{seconds:5.0f} s  {step}: cut off, because the time was over; the next start does it again")
        return True
