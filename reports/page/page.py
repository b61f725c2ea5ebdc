"""Everything that the templates print. It is built whole before the first template runs; a template only prints and formats."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reports.answers.across import Across
from reports.answers.findings import Finding
from reports.answers.health import Health
from reports.answers.overview import Overview
from reports.answers.scaling import Scaling
from reports.answers.short import Answer
from reports.data.costs import Cost
from reports.data.curves import ByClass, TimeTo
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Repeat
from reports.data.operators import Ceiling, RateCurve
from reports.data.profiles import Shown
from reports.data.telemetry_signals import Environment, Neighbours
from reports.page.cache import SourceListing
from reports.page.drawing import SHAPES, Chart
from runner.results.statistics import Estimate

# The signs of frameworks and of workloads: a colour and a shape each, the same in every picture and table of every page.

# Okabe and Ito's colours (Color Universal Design, 2008), each darkened or lightened to a contrast of 3:1 with the page.
PALETTE = {
    "vermilion": ("#d0500a", "#f0824a"),
    "amber": ("#a87400", "#e6a520"),
    "blue": ("#0072b2", "#4fa8e0"),
    "green": ("#00835e", "#2fc295"),
    "purple": ("#b0568a", "#dd8fbd"),
    "sky": ("#2a86b8", "#7cc8f0"),
    "olive": ("#77750a", "#cfcb4a"),
    "grey": ("#6b7280", "#9aa3b0"),
}
# Each framework keeps its place here for good: a colour that follows from the list of all names would change with every new name.
# The first seven often stand in one report, and have a colour each.
_PLACES = (
    *("torch", "tensorflow", "jax", "mxnet_gluon", "chainer", "paddle", "keras_tensorflow"),
    *(
        "caffe2",
        "cntk",
        "flux",
        "keras2_cntk",
        "keras2_theano",
        "keras_jax",
        "keras_torch",
        "knet",
        "lasagne",
        "mindspore",
    ),
    *("mxnet_module", "onnxruntime", "onnxruntime_training", "r_keras", "tensorflow_v1", "tinygrad"),
)
SYMBOLS = tuple(SHAPES)
_COLOURS = [name for name in PALETTE if name != "grey"]
_PAIRS = len(_COLOURS) * len(SYMBOLS)  # the pairs of colour and symbol: 7 and 8 share no divisor, so 56 places differ


def _place(framework: str) -> int:
    """A framework's place. It has the same signs on every page; where it is not in the list its name alone chooses a place that is free."""
    if framework in _PLACES:
        return _PLACES.index(framework)
    return len(_PLACES) + zlib.crc32(framework.encode()) % (_PAIRS - len(_PLACES))


def sign_colours(frameworks: Iterable[str]) -> dict[str, str]:
    """Framework -> colour name."""
    return {name: _COLOURS[_place(name) % len(_COLOURS)] for name in frameworks}


def sign_symbols(cells: Sequence[MeasuredCell]) -> dict[str, str]:
    """Framework -> marker: colour is never the only sign."""
    return {cell.framework: SYMBOLS[_place(cell.framework) % len(SYMBOLS)] for cell in cells}


def nth_sign(at: int) -> tuple[str, str]:
    """(shape, class of the colour) of the `at`-th of some lines that are no frameworks."""
    return SYMBOLS[at % len(SYMBOLS)], f"c-{_COLOURS[(at + 2) % len(_COLOURS)]}"


def sign_of(cell: MeasuredCell) -> tuple[str, str]:
    """(shape, class of the colour) of a cell's framework."""
    place = _place(cell.framework)
    return SYMBOLS[place % len(SYMBOLS)], f"c-{_COLOURS[place % len(_COLOURS)]}"


@dataclass(frozen=True)
class Entry:
    """The entry of one row and one column in the table of results. Lengths are percentages of the bar's track."""

    kind: str  # ranked | unranked | failed | waiting | skipped | none
    words: str  # the ratio to the fastest, or why there is none
    anchor: str = ""  # of the measurement; empty where there is none
    title: str = ""  # its text for a pointer
    measures: str = ""  # for the page's script: reports.page.results
    interval: str = ""  # the ends of the step time's interval in milliseconds, for the page's script
    best: bool = False
    standing: str = ""  # beside the fastest of the column, in the words of reports.answers.standing_words
    mark: str = ""  # the same as a sign: = same, ≈ open
    unsteady: bool = False
    noted: bool = False  # there is something that a reader must know beside the figure
    heat: int = 0  # the colour's strength, in percent
    length: int = 0
    low: int | None = None  # the ends of the interval
    high: int | None = None
    cut: bool = False  # the bar or its interval is longer than the track


@dataclass(frozen=True)
class Row:
    """One image with one framework: PyTorch 2.9.1, then CUDA 12.8."""

    name: str
    rest: str
    image: str
    framework: str
    best: bool  # whether it is shown where each framework has its best version only
    entries: tuple[Entry, ...]
    unrun: bool = False  # nothing of it has been run yet: it is folded away


@dataclass(frozen=True)
class ResultColumn:
    """One group of comparable cells. `few`: its repeats where some cells were measured once, so nothing in the column is confirmed."""

    anchor: str
    title: str
    workload: str  # the anchor of the workload's section
    items: str
    beside: str  # batch and data, where another column has the same workload
    few: str
    unrun: bool = False  # nothing of it has been run yet: it is folded away
    sparse: bool = False  # most of its rows have nothing: it is narrow


@dataclass(frozen=True)
class Slice:
    """The table of results of one device, precision, number of devices and preset."""

    anchor: str
    where: str
    place: Mapping[str, str]  # what the reader chose: gpu, precision, devices, preset
    columns: tuple[ResultColumn, ...]
    rows: tuple[Row, ...]
    unrun: str = ""  # how many measurements are folded away, in words


@dataclass(frozen=True)
class Choice:
    """A choice of the reader: its name in the link, its head, and (value, words) of each."""

    name: str
    head: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Pill:
    """A fact of the run in a few words. `tone`: good, bad, warn or nothing; `link`: the anchor that explains it, or nothing."""

    words: str
    tone: str = ""
    link: str = ""


@dataclass(frozen=True)
class GroupSection:
    """One group of comparable cells of a workload, with all its plots and tables."""

    group: Group
    title: str
    finding: Finding
    rows: tuple[tuple[MeasuredCell, Estimate | None, bool], ...]  # with the ratio, and whether it lies outside the band
    variants: tuple[tuple[tuple[str, str], tuple[str, ...]], ...]  # (name, reason), the labels of the cells
    step_times: Chart | None
    versions: Across | None
    costs: tuple[Cost, ...]  # those that some of the cells have
    cost_rows: tuple[tuple[MeasuredCell, tuple[str, ...]], ...]  # as they are written
    learning: tuple[Chart, ...]
    by_class: ByClass | None
    time_to: TimeTo | None
    phases: Chart | None
    profiles: tuple[Shown, ...]


@dataclass(frozen=True)
class WorkloadSection:
    """All groups of a workload. One of single operations has no effects and no code."""

    workload: MeasuredWorkload
    groups: Sequence[GroupSection | OperatorGroup]
    effects: tuple[tuple[str, str, tuple[Across, ...]], ...] = ()  # (title, head of the column, tables)
    code: tuple[SourceListing, ...] = ()


# A size, its class, and for each cell of the curve what stands there and below it; None where the cell has no such size.
RateRow = tuple[str, str, tuple[tuple[str, str] | None, ...]]


@dataclass(frozen=True)
class RateTable:
    curve: RateCurve
    chart: Chart | None
    rows: tuple[RateRow, ...]


@dataclass(frozen=True)
class OperatorGroup:
    """One group of comparable cells that measured single operations."""

    group: Group
    ceilings: tuple[Ceiling, ...]
    roofline: Chart | None
    tables: tuple[RateTable, ...]


@dataclass(frozen=True)
class RepeatSection:
    """One repeat under a cell's provenance: its plot, its first windows as lines of text, and what ran beside it."""

    repeat: Repeat
    neighbours: Neighbours
    chart: Chart | None
    windows: str


@dataclass(frozen=True)
class CellSection:
    """One measurement with its repeats, and (cost, as it is written) of each cost that was recorded."""

    cell: MeasuredCell
    workload: str  # the anchor of the workload's section
    items: str  # what the workload counts
    rank: str  # in its group, or why it has none
    ratio: Estimate | None  # to the fastest of its group; None of the fastest itself
    differs: str  # from the fastest in what, where that is of the same framework in another image
    costs: tuple[tuple[Cost, str], ...]
    repeats: tuple[RepeatSection, ...]


@dataclass(frozen=True)
class Page:
    overview: Overview
    headline: Answer
    pills: tuple[Pill, ...]
    # of the machines, drained, drifted or perhaps busy: what it is, and what a reader may unfold
    notes: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...]
    unanswered: tuple[Answer, ...]  # the questions that these runs do not answer
    health: Health
    slices: tuple[Slice, ...]
    choices: tuple[Choice, ...]
    has_energy: bool  # whether some cell recorded joules
    colours: Mapping[str, str]  # framework -> the name of its colour
    marks: Mapping[str, str]  # framework -> its symbol
    sections: tuple[WorkloadSection, ...]
    ladders: tuple[Chart, ...]  # of the results that the page shows first
    more_ladders: tuple[Chart, ...]  # of the others
    gpus: tuple[Chart, ...]
    scalings: tuple[Scaling, ...]
    efficiency: Chart | None
    efficiency_of_cpus: Chart | None
    efficiency_at_most: Chart | None
    over_time: tuple[Chart, ...]
    environments: tuple[Environment, ...]
    go_on: tuple[str, ...]  # how, for each run with cells that are not yet run
    cells: tuple[CellSection, ...]

    @property
    def failed(self) -> tuple[MeasuredCell, ...]:
        return tuple(section.cell for section in self.cells if section.cell.status != "ok")

    @property
    def unbegun(self) -> bool:
        """True if no cell has had a repeat."""
        return all(not section.cell.repeats for section in self.cells)
