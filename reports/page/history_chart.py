"""The picture of what changed over time: the step times of cells that several runs measured, and the events that may explain it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from reports.answers.contrast import Side, differences
from reports.answers.run_history import in_time, measured_again
from reports.data.model import MeasuredCell, Tables
from reports.page import signs
from reports.page.drawing import Axis, Chart, LegendEntry, Picture, reaching
from reports.wording import duration, number
from runner.text import visible

_MOST_EVENTS = 12  # in one picture; the table has the others
_BELOW_NUMBER = 4  # pixels: an event's line begins so far below the base line of its number


def changes_over_time(data: Tables) -> tuple[Chart, ...]:
    """For each workload, device and precision: each cell's step time relative to its first run's, run by run.

    An upright marks a run before which a recorded fact changed: the driver, the image, the code.
    """
    order = in_time(data)
    dates = {run.run_id: str(run.manifest["created"])[5:16].replace("T", " ") for run in data.runs}
    groups: dict[tuple[str, str, str], list[Sequence[MeasuredCell]]] = {}
    for cells in measured_again(data):
        key = cells[0].key
        groups.setdefault((key.workload, key.device, key.precision), []).append(cells)
    return tuple(
        _lines(f"changes-{at}", " · ".join(place), lines, order, dates)
        for at, (place, lines) in enumerate(groups.items(), start=1)
    )


def _lines(
    place: str, title: str, lines: Sequence[Sequence[MeasuredCell]], order: dict[str, int], dates: dict[str, str]
) -> Chart:
    times = [[(cell, cell.step.value) for cell in cells if cell.step is not None] for cells in lines]
    shares = [[(cell, seconds / line[0][1]) for cell, seconds in line] for line in times]
    runs = sorted({cell.run_id for cells in lines for cell in cells}, key=order.__getitem__)
    at = {run: place for place, run in enumerate(runs)}
    levels = [0.95, 1.05, *(share for line in shares for _, share in line)]
    picture = Picture(150, Axis(-0.3, len(runs) - 0.7), reaching(levels, 150, 14))
    every = max(1, -(-len(runs) // 4))
    picture.grid("", "× the first run", [(at[run], dates[run]) for run in runs[::every]])
    events = _events(lines)
    for number_, run in enumerate(events, start=1):
        picture.upright(picture.x(at[run] - 0.5), _BELOW_NUMBER, picture.height, "dotted muted")
        picture.words(picture.x(at[run] - 0.5), 0, str(number_), "mid tick")
    for line, seconds in zip(shares, times, strict=True):
        shape, tone = signs.of(line[0][0])
        points = [(picture.x(at[cell.run_id]), picture.at(share)) for cell, share in line]
        picture.line(points, f"line {tone}", line[0][0].label)
        for (x, y), (cell, share), (_, took) in zip(points, line, seconds, strict=True):
            hover = f"{cell.label}: {duration(took)} a step, {number(share)} × the first run"
            picture.mark(x, y, shape, tone, hover)
    said = "; ".join(f"{number_}: {', '.join(changes)}" for number_, changes in enumerate(events.values(), start=1))
    words = (
        f"{title}: step time of each cell relative to its first run, over {len(runs)} runs. Events: {said or 'none'}."
    )
    keys = [LegendEntry(*signs.of(cells[0]), cells[0].name) for cells in lines]
    return picture.chart(place, words, title + (f". Recorded changes: {said}." if said else ""), keys)


def _events(lines: Sequence[Sequence[MeasuredCell]]) -> dict[str, list[str]]:
    """Run -> what was recorded to have changed before it, each once."""
    events: dict[str, list[str]] = {}
    for cells in lines:
        for before, after in pairwise(cells):
            for change in differences(Side((before,)), Side((after,))):
                said = (
                    events.setdefault(after.run_id, []) if len(events) < _MOST_EVENTS or after.run_id in events else []
                )
                words = visible(str(change), 80)
                if words not in said:
                    said.append(words)
    return events
