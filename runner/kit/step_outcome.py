"""How a step ended, as the kit and the import say it. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from typing import Any

from bench import rules
from runner.admission.record import Recorder
from runner.engines.probe import NO_DEVICE, refusal
from runner.kit.steps import KitStep
from runner.results.parcel import Parcel
from runner.text import in_a_line, last_line

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
