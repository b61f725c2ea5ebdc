"""Does the steps one after another. A cell runs as in any run; the other kind is a process that prints one answer. Each leaves a parcel."""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import rules
from runner.admission.record import Recorder, integral
from runner.engines.base import Launch, ReadyImage
from runner.engines.probe import HELD_BY_OTHERS, NO_DEVICE, OPENS_NONE, printed, refusal
from runner.engines.process.installed import InterpreterEngine
from runner.errors import HOST_FAULTS, HostFaultError, system_fault
from runner.kit import results_folder
from runner.kit.steps import EVENTS_MODULES, KitStep
from runner.machine import telemetry
from runner.machine.devices import Machine
from runner.results.on_disk.schema import replace_bytes
from runner.results.parcel import MOST_LOG, Parcel, encode
from runner.results.store import RunStore
from runner.run.attempt import AttemptContext, Limits
from runner.run.dispatch import Job, places
from runner.run.schedule import CellRunner, slot_of
from runner.text import in_a_line, last_line

# How a step ended, as the kit and the import say it. Pure.

# Of the output of a step that is no cell.
MOST_OUTPUT_BYTES = 1 << 20


def outcome(step: KitStep, parcel: Parcel) -> tuple[str, str]:
    """The first two of `first_look`."""
    return first_look(step, parcel)[:2]


def first_look(step: KitStep, parcel: Parcel) -> tuple[str, str, dict[str, Any]]:
    """(ok | refused | failed | no-device, the reason or the figure, the figures) of a step. Of a cell the import is the judge.

    A framework or a device that lacks a precision has not failed: it is refused. Where no GPU can be opened, the step is to be done again.
    """
    recorder = _recorded(parcel) if step.kind == "cell" else None
    if parcel.ended_by:
        status, said = "failed", parcel.ended_by[1]
    elif recorder:
        status, said = _of_cell(parcel, recorder)
    elif parcel.code and (why := refusal(parcel.log)):
        status, said = "refused", why
    elif parcel.code and last_line(parcel.log).startswith(NO_DEVICE):
        status, said = "no-device", last_line(parcel.log).removeprefix(NO_DEVICE)
    else:
        output = b"".join(piece for _, piece in parcel.tape)[:MOST_OUTPUT_BYTES]
        last = last_line(parcel.log) or "it printed nothing"
        try:
            status, said = _of_windows(json.loads(output))
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            status, said = "failed", last
        if parcel.code and status == "ok":
            status, said = "failed", f"exit code {parcel.code}: {last}"
    return status, in_a_line(said, 300), _figures(recorder) if recorder else {}


def _recorded(parcel: Parcel) -> Recorder:
    recorder = Recorder()
    for at, piece in parcel.tape:
        recorder.feed(piece, at)
    recorder.close()
    return recorder


def _step_seconds(recorder: Recorder) -> float | None:
    steady = [row["seconds"] / row["steps"] for row in recorder.rows["samples"] if row["stage"] == "steady"]
    return statistics.median(steady) if steady else None


def _of_cell(parcel: Parcel, recorder: Recorder) -> tuple[str, str]:
    if problem := recorder.problem or recorder.torn:
        return "failed", f"its output broke the protocol: {problem}"
    if error := recorder.error:
        statuses = {"unsupported": "refused", "no-device": "no-device"}
        return statuses.get(error["kind"], "failed"), str(error["message"])
    if parcel.code:
        return "failed", f"exit code {parcel.code}"
    # By the cell's own words: this Python may have no NumPy, which the references need.
    for row in recorder.rows["parity"]:
        if row["error"] is None or not row["error"] <= row["bound"]:
            return "failed", f"{row['quantity']} {row['tensor']}: {row['error'] or math.nan:.2g} > {row['bound']:.2g}"
    seconds = _step_seconds(recorder)
    return "ok", "" if seconds is None else f"{1e3 * seconds:.3g} ms a step"


def _figures(recorder: Recorder) -> dict[str, Any]:
    """Of a cell that measured steps: the seconds of a step, those of its kernels (None: not known), and the layout that it reports."""
    seconds = _step_seconds(recorder)
    if not recorder.ended_well or seconds is None:
        return {}
    share = recorder.row.get("kernel_share")
    layout = (recorder.environment or {})["settings"].get("layout")
    return {"step_seconds": seconds, "kernel_seconds": share and seconds * share, "layout": layout}


def layouts(said: Mapping[KitStep, Mapping[str, Any]]) -> list[str]:
    """A sentence for each cell that ended well in both layouts: which was faster, and which one the default has.

    `said` has the figures of each step. Eagerly a small network waits for the host in either layout: the kernels' time is the GPU's word.
    """
    modes_of: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for step, each in said.items():
        cell = step.cell
        if step.repeat == 1 and each.get("status") == "ok" and each.get("step_seconds"):
            modes_of.setdefault((cell.framework, cell.workload, cell.precision), {})[cell.mode] = each
    return [
        f"{' '.join(names)}: {_compared(modes)}; the default has {_table(modes)}"
        for names, modes in modes_of.items()
        if modes.keys() >= rules.LAYOUTS.keys()
    ]


def _compared(modes: Mapping[str, Mapping[str, Any]]) -> str:
    first, last = rules.LAYOUTS
    one, other = modes[first], modes[last]
    words = f"a step with {first} takes {one['step_seconds'] / other['step_seconds']:.2f} times as long as with {last}"
    if one["kernel_seconds"] and other["kernel_seconds"]:
        words += f", its kernels {one['kernel_seconds'] / other['kernel_seconds']:.2f} times"
    return words


def _table(modes: Mapping[str, Mapping[str, Any]]) -> str:
    """The layout of the default, in the words of a mode: it is what the table of layouts says."""
    usual = modes.get("default", {}).get("layout")
    return next((mode for mode, order in rules.LAYOUTS.items() if order == usual), "not been measured")


def _of_windows(said: Any) -> tuple[str, str]:
    """Windows by the clock and by CUDA's events, which may be of any form."""
    pairs = [(float(each["clock_seconds"]), float(each["event_seconds"])) for each in said["windows"]]
    # Seconds may be so few that a ratio is infinite.
    gaps = [abs(clock / events - 1) for clock, events in pairs if events]
    worst = max(filter(math.isfinite, gaps), default=None)
    return "ok", "" if worst is None else f"the clock is within {100 * worst:.2g} % of CUDA's events"


# The agreement of two ways to measure the same: a GPU's energy counter and its power over time. Pure.


def energies(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """GPU -> (joules by its counter, joules by its power over time) in the telemetry of one step, where it gave both.

    `cpu` has no power.
    """
    of_each: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("energy_joules") is not None and row.get("power_watts") is not None:
            of_each.setdefault(str(row["device"]), []).append(row)
    return {
        device: (
            own[-1]["energy_joules"] - own[0]["energy_joules"],
            integral([(row["unix"], row["power_watts"]) for row in own]),
        )
        for device, own in sorted(of_each.items())
        if len(own) > 1
    }


def total(steps: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, tuple[float, float]]:
    """The same over several steps."""
    sums: dict[str, tuple[float, float]] = {}
    for device, (counter, power) in (pair for step in steps for pair in step.items()):
        before = sums.get(device, (0.0, 0.0))
        sums[device] = before[0] + counter, before[1] + power
    return sums


def sentence(device: str, counter: float, power: float) -> str:
    share = f"{100 * (counter / power - 1):+.1f} %" if power > 0 else "which cannot be compared"
    return f"{device}: its energy counter says {counter:.0f} J, its power over time {power:.0f} J ({share})"


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
        running = self.engine.start(Launch(program, words, self.slot, self.run.run_id, cache))
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
        if results_folder.size(self.out) + len(content) > results_folder.MOST_BYTES:
            full = "disk", f"the archive would have more than {results_folder.MOST_BYTES} bytes with what it printed"
            parcel = replace(parcel, ended_by=full, tape=(), telemetry=())
            content = encode(parcel)
        status, said, figures = first_look(step, parcel)
        if status == "no-device" and OPENS_NONE in said and not self._lost:
            self.unable[step.cell.framework] = said
            results_folder.say(f"{seconds:5.0f} s  {step}: {said}")
            return
        if status == "no-device" and re.search(HELD_BY_OTHERS, said) and not self._lost:
            self.held[step.cell.framework] = said
            results_folder.say(f"{seconds:5.0f} s  {step}: {said}")
            return
        if self._lost or status == "no-device":
            # The step is left for the start after the remedy.
            self.gone = "its GPU fell off the bus" if self._lost else f"no GPU can be opened ({said})"
            results_folder.say(f"{seconds:5.0f} s  {step}: {self.gone}")
            return
        summary = {"status": status, "energy_joules": energies(parcel.telemetry), **figures}
        replace_bytes(results_folder.said_path(self.out, step), results_folder.document(summary))
        # Written last: a step is done when this file is there.
        replace_bytes(results_folder.path_of(self.out, step), content)
        results_folder.say(f"{seconds:5.0f} s  {step}: {status}{said and f': {said}'}")

    def _goes_on(self, step: KitStep, seconds: float) -> bool:
        """True if the next start does a stopped step again: once, so that one that hangs does not keep the others from their turn."""
        mark = self.out / "steps" / f"{step.name}.cut-off"
        if seconds + _DUMP_SECONDS + _SLACK_SECONDS >= STEP_SECONDS or mark.exists():
            return False
        mark.touch()
        results_folder.say(
            f"{seconds:5.0f} s  {step}: cut off, because the time was over; the next start does it again"
        )
        return True
