"""The plots of a page, gathered while it is put together, and packed for it."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reports import text
from reports.answers import scaling
from reports.data import ceilings, operators, telemetry
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Repeat, Tables
from reports.page import charts, operator_charts, trust_charts
from reports.page.figure import MOST_POINTS, Figure

# All repeats share these, so that a page of a thousand cells stays one that opens.
POINTS_IN_ALL = 40_000


@dataclass(frozen=True)
class Chart:
    """A plot's place in the page: its id, what it shows in words, and its height before it is drawn, in pixels."""

    id: str
    words: str
    height: int
    caption: str


class Plots:
    """Collects the figures of the page while it is put together."""

    def __init__(self, tables_: Tables) -> None:
        repeats = max(1, sum(len(cell.repeats) for cell in tables_.cells))
        self.most = max(40, min(MOST_POINTS, POINTS_IN_ALL // repeats))
        self.figures: list[Figure] = []

    def add(self, figure: Figure | None, words: str, caption: str = "") -> Chart | None:
        if figure is None:
            return None
        self.figures.append(figure)
        return Chart(f"plot-{len(self.figures)}", text.visible(words, 2000), int(figure["layout"]["height"]), caption)

    def intervals(self, group: Group) -> Chart | None:
        caption = "Each tick is a measured window, the marker their median, the bar its 95 % interval."
        hidden = charts.beyond_axis(group)
        if hidden:
            caption += f" Beyond the axis: {text.plural(hidden, 'window')}, counted as all others."
        return self.add(charts.intervals(group, self.most), charts.described(group), caption)

    def learning(self, group: Group, workload: MeasuredWorkload) -> list[Chart]:
        drawn = charts.learning(group, workload, self.most) if workload.learns else []
        made = (
            self.add(figure, f"{title} against training time, a line for each repeat.", title)
            for title, figure in drawn
        )
        return [chart for chart in made if chart is not None]

    def operator(self, curve: operators.RateCurve) -> Chart | None:
        words = f"{curve.operation} {curve.direction}: {curve.unit} by size, a line for each cell; the table below has the numbers."
        return self.add(operator_charts.operator(curve), words)

    def roofline(self, shown: Sequence[operators.RateCurve], roofs: Iterable[ceilings.Ceiling]) -> Chart | None:
        words = "GFLOP/s of each operation by its operations a byte, under the device's roofs; the tables below have the numbers."
        caption = "A marker is an operation of a cell at the size where it was fastest. Dashed: the roof that was measured in this run"
        caption += "; dotted: the datasheet's." if any(curve.peak for curve in shown) else "."
        return self.add(operator_charts.roofline(shown, roofs), words, caption)

    def scaling(self, shown: scaling.Scaling) -> Chart | None:
        words = f"{shown.workload.items} a second by devices: {shown.title}; the table below has the numbers."
        caption = "Markers are measured, with 95 % intervals; the dotted line is the ideal."
        if shown.model:
            caption += " Dashed, within its shaded interval: predicted, not measured."
        return self.add(charts.scaling(shown), words, caption)

    def phases(self, group: Group) -> Chart | None:
        words = "Seconds each cell spent in each phase before steady training; the table below has the numbers."
        return self.add(charts.phases(group), words)

    def sequence(self, cell: MeasuredCell, repeat: Repeat) -> Chart | None:
        sampled = telemetry.described(repeat)
        words = f"Windows of {cell.label}, repeat {repeat.number}, in their order; the list below has the numbers. {sampled}"
        caption = f"Steady windows ● and warm-up ○ in their order, and on the right how often which came. {sampled}"
        return self.add(trust_charts.sequence(cell, repeat, self.most), words, caption)

    def packed(self, signs: Any) -> str:
        """For the page's script: a line with `signs`, then one with each figure, in the order of their numbers."""
        lines = (json.dumps(each, allow_nan=False, separators=(",", ":")) for each in (signs, *self.figures))
        return packed("\n".join(lines))


def packed(content: str) -> str:
    """A text as an HTML page can hold it without reading it: gzip in base64, the same bytes for the same text."""
    return base64.b64encode(gzip.compress(content.encode("utf-8"), 6, mtime=0)).decode("ascii")
