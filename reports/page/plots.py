"""The plots of a page: each figure with its place, its caption, and what it shows in words; packed, all of them, for the page's script."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reports import text
from reports.answers.scaling import Scaling
from reports.data import telemetry
from reports.data.ceilings import Ceiling
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Repeat, Tables
from reports.data.operators import RateCurve
from reports.page import charts, operator_charts, trust_charts
from reports.page.figure import MOST_POINTS, Figure
from runner.text import visible

# All repeats share these. So a page of a thousand cells still opens.
POINTS_IN_ALL = 40_000


@dataclass(frozen=True)
class Chart:
    """A plot: the id of its place in the page, its figure, what it shows in words, and its caption."""

    id: str
    figure: Figure
    words: str
    caption: str

    @property
    def height(self) -> int:
        """In pixels; the page keeps this room before the plot is drawn."""
        return int(self.figure["layout"]["height"])


def _chart(place: str, figure: Figure | None, words: str, caption: str = "") -> Chart | None:
    return None if figure is None else Chart(f"plot-{place}", figure, visible(words, 2000), caption)


def points_limit(tables: Tables) -> int:
    """How many points of each repeat a plot draws."""
    repeats = max(1, sum(len(cell.repeats) for cell in tables.cells))
    return max(40, min(MOST_POINTS, POINTS_IN_ALL // repeats))


def step_times(group: Group, most: int) -> Chart | None:
    caption = "Each tick is a measured window, the marker their median, the bar its 95 % interval."
    hidden = charts.beyond_axis(group)
    if hidden:
        caption += f" Beyond the axis: {text.plural(hidden, 'window')}, counted like all others."
    return _chart(f"steps-{group.anchor}", charts.intervals(group, most), charts.described(group), caption)


def learning(group: Group, workload: MeasuredWorkload, most: int) -> tuple[Chart, ...]:
    figures = charts.learning(group, workload, most) if workload.learns else []
    drawn = (
        _chart(
            f"learning-{group.anchor}-{at}", figure, f"{title} against training time, a line for each repeat.", title
        )
        for at, (title, figure) in enumerate(figures, start=1)
    )
    return tuple(filter(None, drawn))


def phases(group: Group) -> Chart | None:
    words = "Seconds each cell spent in each phase before steady training; the table below has the numbers."
    return _chart(f"phases-{group.anchor}", charts.phases(group), words)


def operator(place: str, curve: RateCurve) -> Chart | None:
    words = f"{curve.operation} {curve.direction}: {curve.unit} by size, a line for each cell; the table below has the numbers."
    return _chart(place, operator_charts.operator(curve), words)


def roofline(group: Group, curves: Sequence[RateCurve], ceilings: Iterable[Ceiling]) -> Chart | None:
    words = "GFLOP/s of each operation by its operations a byte, under the device's roofs; the tables below have the numbers."
    caption = "A marker is an operation of a cell at the size where it was fastest. Dashed: the roof that was measured in this run"
    caption += "; dotted: the datasheet's." if any(curve.peak for curve in curves) else "."
    return _chart(f"roofs-{group.anchor}", operator_charts.roofline(curves, ceilings), words, caption)


def scaling(shown: Scaling) -> Chart | None:
    words = f"{shown.workload.items} a second by devices: {shown.title}; the table below has the numbers."
    caption = "Markers are measured, with 95 % intervals; the dotted line is the ideal."
    if shown.model:
        caption += " Dashed, within its shaded interval: predicted, not measured."
    return _chart(shown.anchor, charts.scaling(shown), words, caption)


def sequence(cell: MeasuredCell, repeat: Repeat, most: int) -> Chart | None:
    sampled = telemetry.described(repeat)
    words = (
        f"Windows of {cell.label}, repeat {repeat.number}, in their order; the list below has the numbers. {sampled}"
    )
    caption = f"Steady windows ● and warm-up ○ in their order; on the right, how many windows took how long. {sampled}"
    return _chart(f"{cell.anchor}-{repeat.number}", trust_charts.sequence(cell, repeat, most), words, caption)


def packed_figures(signs: Any, drawn: Iterable[Chart]) -> str:
    """For the page's script: a line with `signs`, then for each plot a line with its id and one with its figure."""
    lines = [_json(signs)]
    for chart in drawn:
        lines += [chart.id, _json(chart.figure)]
    return packed("\n".join(lines))


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def packed(content: str) -> str:
    """A text as an HTML page can hold it without reading it: gzip in base64, the same bytes for the same text."""
    return base64.b64encode(gzip.compress(content.encode("utf-8"), 6, mtime=0)).decode("ascii")
