"""Pictures as SVG, drawn when the page is written.

A picture fills the width that the page gives it, and its text keeps its size: x is in per cent of the width, y is in pixels.
It names no colour: a class such as `c-blue` or `bad` does, and the page's styles colour it for both themes and for paper.
Markup escapes every text that a picture prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from reports.answers.health import FleetHealth, GpuHealth, Health, NodeHealth
from reports.wording import number
from runner.results.statistics import Array
from runner.text import visible

_LINE = 16  # pixels between two lines of text
# Room above a picture with a title over its axis, and above any other: as charts.css has them.
_TALL, _LOW = 22, 4
# About 300 pixels: a phone's line has that.
_LABEL = 44

# Around a point, about ten pixels wide. The page's styles draw the same shapes beside the names of frameworks.
SHAPES = {
    "circle": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "diamond": "M0-5.8 5.8 0 0 5.8-5.8 0z",
    "square": "M-4.2-4.2H4.2V4.2H-4.2z",
    "triangle-up": "M0-5.4 5.2 4.2H-5.2z",
    "cross": "M-1.8-5.2H1.8V-1.8H5.2V1.8H1.8V5.2H-1.8V1.8H-5.2V-1.8H-1.8z",
    "triangle-down": "M0 5.4 5.2-4.2H-5.2z",
    "star": "M0-6.2 1.5-2 5.9-1.9 2.4.8 3.6 5 0 2.5-3.6 5-2.4.8-5.9-1.9-1.5-2z",
    "hexagon": "M0-5.4 4.7-2.7V2.7L0 5.4-4.7 2.7V-2.7z",
}


class LegendEntry(NamedTuple):
    """One entry of a picture's legend."""

    shape: str
    tone: str
    words: str


@dataclass(frozen=True)
class Chart:
    """A picture: its id in the page, the whole <svg> (or the place where the page's script draws samples), what it shows in words,
    its caption, its height in pixels, its legend."""

    id: str
    svg: Markup
    words: str
    caption: str
    height: int
    keys: tuple[LegendEntry, ...] = ()


@dataclass(frozen=True)
class Axis:
    """Places the values from `low` to `high` between `start` and `end`: per cent of the width, or pixels."""

    low: float
    high: float
    start: float = 0.0
    end: float = 100.0
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value; one beyond the axis lies at its end."""
        low, high, value = (math.log(max(each, 1e-300)) if self.log else each for each in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + (self.end - self.start) * min(max(share, 0.0), 1.0)

    @property
    def ticks(self) -> list[float]:
        """At most six round values within the axis."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            parts = (1, 2, 5) if len(powers) <= 3 else (1,)
            inside = [part * 10.0**power for power in powers for part in parts]
            # Around one value no round one may lie.
            inside = [value for value in inside if self.low <= value <= self.high] or [math.sqrt(self.low * self.high)]
            return inside[:: math.ceil(len(inside) / 6) or 1]
        rough = (self.high - self.low) / 5
        if rough <= 0 or not math.isfinite(rough):
            return [self.low]
        unit = 10.0 ** math.floor(math.log10(rough))
        step = unit * next(part for part in (1, 2, 2.5, 5, 10) if part * unit >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [round(at * step, 12) for at in range(first, math.floor(self.high / step + 1e-9) + 1)]


def reaching(values: Iterable[float], start: float, end: float, *, log: bool = False, zero: bool = False) -> Axis:
    """An axis with room for all the values."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
    low, high = min(finite), max(finite)
    if log:
        return Axis(low / 1.2, high * 1.2, start, end, log=True)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return Axis(0.0 if zero and low >= 0 else low - room, high + room, start, end)


def thinned(count: int, most: int) -> slice:
    """Every k-th point, so that at most `most` are left."""
    return slice(None, None, max(1, math.ceil(count / most)))


class Picture:
    """Collects the parts of one picture. `height` is that of the plot without its axis. `named` leaves room for names on the left."""

    def __init__(self, height: float, x: Axis, y: Axis | None = None, *, named: bool = False) -> None:
        self.height, self.x, self.y, self._named = height, x, y, named
        self._bottom = height  # of the lowest text
        self._lines: list[Markup] = []  # in a drawing of their own, which is stretched to the width
        self._marks: list[Markup] = []  # not stretched

    def at(self, value: float) -> float:
        """The height of a value."""
        return self.y(value) if self.y is not None else 0.0

    def path(self, path: str, kind: str, words: str = "") -> None:
        """Lines or areas. In `path` x is in per cent and y in pixels; `kind` are classes; `words` is what a pointer reads."""
        title = Markup("<title>{}</title>").format(visible(words, 300)) if words else ""
        self._lines.append(Markup('<path class="{}" d="{}">{}</path>').format(kind, Markup(path), title))

    def line(self, points: Iterable[tuple[float, float]], kind: str, words: str = "") -> None:
        """A line through places."""
        self.path("M" + "L".join(f"{_short(x)} {_short(y)}" for x, y in points), kind, words)

    def bar(self, start: float, end: float, top: float, height: float, kind: str, words: str = "") -> None:
        """A filled rectangle between two places."""
        self.path(f"M{_short(start)} {_short(top)}H{_short(end)}v{_short(height)}H{_short(start)}z", kind, words)

    def interval(self, low: float, high: float, y: float, kind: str) -> None:
        """A level line with an upright at each end."""
        ends = "".join(f"M{_short(x)} {_short(y - 4)}v8" for x in (low, high))
        self.path(f"M{_short(low)} {_short(y)}H{_short(high)}{ends}", kind)

    def upright(self, x: float, low: float, high: float, kind: str) -> None:
        self.path(f"M{_short(x)} {_short(low)}V{_short(high)}", kind)

    def mark(self, x: float, y: float, shape: str, kind: str, words: str = "") -> None:
        """A marker at a place."""
        title = Markup("<title>{}</title>").format(visible(words, 300)) if words else ""
        mark = Markup('<svg x="{}%" y="{}"><path class="{}" d="{}">{}</path></svg>')
        self._marks.append(mark.format(_short(x), _short(y), f"dot {kind}", Markup(SHAPES[shape]), title))

    def words(self, x: float, y: float, words: str, kind: str = "", longest: int = _LABEL) -> None:
        """A text on the base line y. `kind` is `end` or `mid` where the text does not begin at x."""
        self._bottom = max(self._bottom, y)
        words = visible(words, 2000)
        words = words if len(words) <= longest else words[: longest - 1].rstrip() + "…"
        self._marks.append(
            Markup('<text x="{}%" y="{}" class="{}">{}</text>').format(_short(x), _short(y), kind, words)
        )

    def beside(self, y: float, words: str, kind: str = "tick") -> None:
        """A text on the base line y, left of the plot."""
        text = Markup('<text x="-7" y="{}" class="end {}">{}</text>')
        self._marks.append(text.format(_short(y), kind, visible(words, 60)))

    def grid(self, x_title: str = "", y_title: str = "", x_ticks: Sequence[tuple[float, str]] | None = None) -> None:
        """The lines and the labels of the axes. `x_ticks` are values with their labels, where the axis has words."""
        if x_ticks is None:
            x_ticks = [(value, _round(value)) for value in self.x.ticks]
        if x_ticks:
            self.path("".join(f"M{_short(self.x(value))} 0V{_short(self.height)}" for value, _ in x_ticks), "grid")
        for value, label in x_ticks:
            self.words(self.x(value), self.height + _LINE, label, "mid tick")
        if x_title:
            self.words(100, self.height + 2 * _LINE + 2, x_title, "end tick")
        if self.y is not None:
            ticks = self.y.ticks
            self.path("".join(f"M0 {_short(self.y(value))}H100" for value in ticks), "grid")
            for value in ticks:
                self.beside(self.y(value) + 4, _round(value))
            if y_title:
                self._marks.append(Markup('<text x="-44" y="-10" class="tick">{}</text>').format(visible(y_title, 60)))

    def chart(self, place: str, words: str, caption: str = "", keys: Iterable[LegendEntry] = ()) -> Chart:
        """The finished picture."""
        kind = " tall" if self.y is not None else " named" if self._named else ""
        whole = round(self._bottom + 6 + (_TALL if self.y is not None else _LOW))
        svg = Markup(
            '<svg class="chart{}" role="img" aria-label="{}" height="{}">'
            '<svg viewBox="0 0 100 {}" height="{}" preserveAspectRatio="none">{}</svg>{}</svg>'
        ).format(
            kind,
            visible(words, 2000),
            whole,
            _short(self.height),
            _short(self.height),
            Markup("").join(self._lines),
            Markup("").join(self._marks),
        )
        return Chart(f"plot-{place}", svg, visible(words, 2000), caption, whole, tuple(keys))


def uprights(places: Array, y: float, height: float) -> str:
    """The path of a tick at each place. Ticks that would cover each other are one."""
    shown = np.unique(np.round(places, 1))
    return "".join(f"M{_short(x)} {_short(y)}v{_short(height)}" for x in shown)


def _short(value: float) -> str:
    """At most two decimals: a hundredth of a per cent is a tenth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def _round(value: float) -> str:
    """A round number as an axis shows it: without zeros behind the point."""
    plain = f"{value:.6g}"
    return number(value) if "e" in plain else f"{float(plain):,.10f}".rstrip("0").rstrip(".").replace(",", "\u2009")


# The pictures of whether every GPU performs as the others of its model do.

# GPUs of a strip and strips of a model at most: more become grids of GPUs and workloads, as wide as a telephone shows.
MOST_IN_A_STRIP, MOST_STRIPS, COLUMNS = 16, 4, 4
_ROW, _REASON = 22, 16  # pixels
_MOST_NAMED = 8  # slow nodes and GPUs in a caption
_SHORT = 32  # characters of a reason in the picture; the caption has all of it


def chart_of_gpus(health: Health) -> tuple[Chart, ...]:
    """A strip for each fleet; of GPUs in several nodes a map of nodes and GPUs.

    Of a model with more GPUs or more fleets, a grid for every four fleets.
    """
    charts = []
    for at, (model, each) in enumerate(groupby(health.fleets, key=lambda fleet: fleet.model), start=1):
        fleets = [fleet for fleet in each if fleet.gpus]
        if any(fleet.nodes for fleet in fleets):
            charts += [_racks(f"gpus-{at}-{place}", fleet) for place, fleet in enumerate(fleets, start=1)]
        elif len(fleets) > MOST_STRIPS or any(len(fleet.gpus) > MOST_IN_A_STRIP for fleet in fleets):
            parts = [fleets[start : start + COLUMNS] for start in range(0, len(fleets), COLUMNS)]
            charts += [_grid(f"gpus-{at}-{place}", model, part) for place, part in enumerate(parts, start=1)]
        else:
            charts += [_strip(f"gpus-{at}-{place}", fleet) for place, fleet in enumerate(fleets, start=1)]
    return tuple(charts)


def _strip(place: str, fleet: FleetHealth) -> Chart:
    """A row for each GPU: its deviation with the interval, over the band of normal deviations."""
    ends = [end for gpu in fleet.gpus for end in (gpu.deviation, gpu.low, gpu.high) if end is not None]
    ends += [end for end in (fleet.low, fleet.high) if end is not None]
    reach = 1.1 * max([abs(end) for end in ends if math.isfinite(end)] or [0.0]) or 0.01
    axis = Axis(min([-0.3 * reach, *(1.1 * end for end in ends if math.isfinite(end))]), reach)
    height = sum(_ROW + (_REASON if gpu.named and gpu.reason else 0) for gpu in fleet.gpus)
    picture = Picture(height, axis, named=True)
    if fleet.low is not None and fleet.high is not None:
        picture.bar(axis(fleet.low), axis(fleet.high), 0, height, "area normal", "the normal band")
    ticks = [(value, "median" if value == 0 else f"{100 * value:+.3g} %".replace("-", "−")) for value in axis.ticks]
    picture.grid("", "", ticks)
    top = 0
    for gpu in fleet.gpus:
        tone, y = "alarm" if gpu.named else "", top + _ROW / 2
        picture.beside(y + 4, _name(gpu), tone)
        if gpu.low is not None and gpu.high is not None:
            picture.interval(axis(gpu.low), axis(gpu.high), y, f"line {tone}")
        picture.mark(axis(gpu.deviation), y, "diamond" if gpu.named else "circle", tone, _said(gpu))
        top += _ROW
        if gpu.named and gpu.reason:
            picture.words(100, top + 10, f"{_signed(gpu.deviation)} %: {gpu.reason}", f"end {tone}", _SHORT)
            top += _REASON
    words = f"{fleet.sentence} " + "; ".join(map(_said, fleet.gpus))
    caption = f"{fleet.cell} on {fleet.model}: each GPU's step time beside the median of {len(fleet.gpus)}."
    caption += " Shaded: normal deviations; ◆ slow." if fleet.high is not None else " Too few GPUs for a normal band."
    caption += "".join(f" {_name(gpu)}: {gpu.reason}." for gpu in fleet.gpus if gpu.named and gpu.reason)
    return picture.chart(place, words, caption)


def _grid(place: str, model: str, fleets: Sequence[FleetHealth]) -> Chart:
    """A row for each GPU, a column for each fleet: the deviation, and a mark where the GPU is slow."""
    rows = sorted({((-1 if gpu.index is None else gpu.index), _name(gpu)) for fleet in fleets for gpu in fleet.gpus})
    picture = Picture(20 * len(rows) + 20, Axis(0, len(fleets)), named=True)
    named = []
    for column, fleet in enumerate(fleets):
        picture.words(picture.x(column + 0.5), 12, fleet.workload, "mid tick", 28 // len(fleets))
        places = {_name(gpu): gpu for gpu in fleet.gpus}
        for at, (_, name) in enumerate(rows):
            gpu = places.get(name)
            if gpu is None:
                continue
            y, left = 20 + 20 * at, picture.x(column)
            kind = "area alarm" if gpu.named else "area wash"
            picture.bar(left + 0.3, picture.x(column + 1) - 0.3, y + 1, 18, kind, f"{fleet.cell}: {_said(gpu)}")
            label = ("◆ " if gpu.named else "") + _signed(gpu.deviation)
            picture.words(picture.x(column + 0.5), y + 14, label, "mid over" if gpu.named else "mid")
            if gpu.named:
                named.append(f"{_said(gpu)} in {fleet.cell}")
    for at, (_, name) in enumerate(rows):
        picture.beside(20 + 20 * at + 14, name)
    words = (
        f"Step time of each {model} beside the median of all, by workload. Slow: " + ("; ".join(named) or "none") + "."
    )
    caption = f"{model}: each GPU's step time beside the median of all, in per cent; ◆ slow. Columns: "
    caption += "; ".join(fleet.cell for fleet in fleets) + "."
    return picture.chart(place, words, caption)


def _racks(place: str, fleet: FleetHealth) -> Chart:
    """A row for each node, the slowest first: its own deviation, then that of each of its GPUs; a mark where one is slow."""
    of_node: dict[str, list[GpuHealth]] = {node.name: [] for node in fleet.nodes}
    for gpu in fleet.gpus:
        of_node.setdefault(gpu.node, []).append(gpu)
    columns = 2 + max((len(gpus) for gpus in of_node.values()), default=0)
    picture = Picture(20 * len(fleet.nodes) + 20, Axis(0, columns), named=True)
    picture.words(picture.x(1), 12, "node", "mid tick")
    picture.words(picture.x(1 + columns / 2), 12, "its GPUs", "mid tick")
    named = []
    for at, node in enumerate(fleet.nodes):
        y = 20 + 20 * at
        picture.beside(y + 14, _short_name(node.name), "alarm" if node.named else "tick")
        spans = [(0.0, 2.0, node.deviation, node.named, _said_node(node))]
        spans += [
            (2.0 + column, 3.0 + column, gpu.deviation, gpu.named, f"{node.name}, {_said(gpu)}")
            for column, gpu in enumerate(of_node[node.name])
        ]
        for left, right, deviation, slow, words in spans:
            kind = "area alarm" if slow else "area wash"
            picture.bar(picture.x(left) + 0.3, picture.x(right) - 0.3, y + 1, 18, kind, words)
            # Beside many GPUs there is no room for more, nor for a sign: slow is always plus. The description has the numbers.
            label = _signed(deviation) if right - left > 1 else f"{100 * deviation:.0f}" if slow else ""
            if label:
                picture.words(picture.x((left + right) / 2), y + 14, label, "mid over" if slow else "mid")
            if slow:
                named.append(words)
    words = f"{fleet.sentence} Nodes, the slowest first: " + "; ".join(map(_said_node, fleet.nodes))
    caption = f"{fleet.cell} on {fleet.model}: the median of each node, then each of its GPUs, beside the median of all, in per cent."
    more = f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    caption += f" Coloured: {'; '.join(named[:_MOST_NAMED])}{more}." if named else " None is slow."
    return picture.chart(place, words, caption)


def _said_node(node: NodeHealth) -> str:
    """One node in words."""
    slow = f", slow{': ' + node.reason if node.reason else ''}" if node.named else ""
    return f"{node.name} {_signed(node.deviation)} %{slow}"


def _short_name(name: str) -> str:
    """The name of a node, as long as there is room left of the picture. Names of one fleet differ at their end."""
    shown = visible(name)
    return shown if len(shown) <= 13 else f"{shown[:4]}…{shown[-8:]}"


def _name(gpu: GpuHealth) -> str:
    index = "" if gpu.index is None else f" {gpu.index}"
    return f"GPU{index} …{gpu.uuid_end}"


def _signed(share: float) -> str:
    """A share in per cent, without its sign of per cent. Nothing is -0.0."""
    return f"{round(100 * share, 1) + 0.0:+.1f}".replace("-", "−")


def _said(gpu: GpuHealth) -> str:
    """One GPU in words."""
    interval = "" if gpu.low is None or gpu.high is None else f" ({_signed(gpu.low)} % to {_signed(gpu.high)} %)"
    slow = f", slow{': ' + gpu.reason if gpu.reason else ''}" if gpu.named else ""
    return f"{_name(gpu)} {_signed(gpu.deviation)} %{interval}{slow}"
