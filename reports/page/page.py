"""Everything that the templates print. It is built whole before the first template runs; a template only prints and formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reports.answers.across import Across
from reports.answers.findings import Finding
from reports.answers.history import History
from reports.answers.scaling import Scaling
from reports.data.ceilings import Ceiling
from reports.data.costs import Cost
from reports.data.curves import ByClass, TimeTo
from reports.data.environments import Environment
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Ranked, Repeat, Run, Skipped
from reports.data.operators import RateCurve
from reports.data.profiles import Shown
from reports.data.telemetry import Neighbours
from reports.page.plots import Chart
from reports.page.rosetta import Source
from runner.results.statistics import Estimate


@dataclass(frozen=True)
class Look:
    """How each framework is marked: the name of its colour, and its symbol."""

    colours: Mapping[str, str]
    marks: Mapping[str, str]


@dataclass(frozen=True)
class Bar:
    """One bar of an answer: its length, and where its interval begins and how wide it is. All are percentages of the track."""

    entry: Ranked
    name: str
    length: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Answer:
    """The answer for one group, its bars, how many slower cells have no bar, and the caveats that are its own."""

    finding: Finding
    bars: tuple[Bar, ...]
    slower: int
    caveats: tuple[str, ...]


@dataclass(frozen=True)
class OverviewEntry:
    """What stands in one place of the overview: a cell with its ratio, a cell that is not ranked, the reason why the plan left
    it out, or nothing."""

    cell: MeasuredCell | None = None
    ratio: Estimate | None = None
    left_out: str = ""
    title: str = ""  # what it says to a pointer
    shade: float = 0.0


@dataclass(frozen=True)
class OverviewRow:
    label: str
    framework: str
    entries: tuple[OverviewEntry, ...]  # one for each column


@dataclass(frozen=True)
class Overview:
    """A row for each labelled image, a column for each group of comparable cells."""

    workloads: tuple[MeasuredWorkload, ...]
    columns: tuple[tuple[str, Group], ...]  # (the workload's anchor, group)
    rows: tuple[OverviewRow, ...]
    absent: tuple[str, ...]  # images that the plan left out altogether


@dataclass(frozen=True)
class ResultRow:
    cell: MeasuredCell
    ratio: Estimate | None
    outside_band: bool


@dataclass(frozen=True)
class Variant:
    """What some cells compute instead of the specification, and why."""

    name: str
    reason: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class CostTable:
    """The costs that some of the cells have, and each cell's values as they are written."""

    columns: tuple[Cost, ...]
    rows: tuple[tuple[MeasuredCell, tuple[str, ...]], ...]


@dataclass(frozen=True)
class GroupSection:
    """One group of comparable cells of a workload, with all its plots and tables."""

    group: Group
    title: str
    rows: tuple[ResultRow, ...]
    variants: tuple[Variant, ...]
    step_times: Chart | None
    versions: Across | None
    costs: CostTable | None
    learning: tuple[Chart, ...]
    by_class: ByClass | None
    time_to: TimeTo | None
    phases: Chart | None
    profiles: tuple[Shown, ...]


@dataclass(frozen=True)
class WorkloadSection:
    workload: MeasuredWorkload
    groups: tuple[GroupSection, ...]
    effects: tuple[tuple[str, str, tuple[Across, ...]], ...]  # (title, head of the column, tables)
    code: tuple[Source, ...]


@dataclass(frozen=True)
class RateEntry:
    """One operation at one size in one cell. A refused rate lies above the device's peak and is not printed."""

    refused: bool
    value: float
    best: bool
    shifted: bool
    seconds: float
    share: float | None
    of_ceiling: float | None
    bus_bandwidth: float | None
    has_ceiling: bool


@dataclass(frozen=True)
class RateRow:
    size: str
    size_class: str
    entries: tuple[RateEntry | None, ...]  # one for each cell of the curve


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
class OperatorSection:
    workload: MeasuredWorkload
    groups: tuple[OperatorGroup, ...]


@dataclass(frozen=True)
class ScalingSection:
    scaling: Scaling
    chart: Chart | None


@dataclass(frozen=True)
class RepeatSection:
    """One repeat under a cell's provenance: its plot, its first windows as lines of text, and what ran beside it."""

    repeat: Repeat
    neighbours: Neighbours
    chart: Chart | None
    windows: str


@dataclass(frozen=True)
class CellSection:
    cell: MeasuredCell
    repeats: tuple[RepeatSection, ...]


@dataclass(frozen=True)
class Page:
    title: str
    lead: str
    look: Look
    runs: tuple[Run, ...]
    answers: tuple[Answer, ...]
    changes: tuple[str, ...]
    shared: tuple[str, ...]  # the caveats that all answers have
    overview: Overview
    sections: tuple[WorkloadSection | OperatorSection, ...]
    scalings: tuple[ScalingSection, ...]
    history: History | None
    environments: tuple[Environment, ...]
    skipped: tuple[Skipped, ...]
    cells: tuple[CellSection, ...]

    @property
    def failed(self) -> tuple[MeasuredCell, ...]:
        return tuple(section.cell for section in self.cells if section.cell.status != "ok")

    @property
    def charts(self) -> Iterator[Chart]:
        """Every plot of the page, in the order of the page."""
        for section in self.sections:
            for part in section.groups:
                if isinstance(part, GroupSection):
                    yield from filter(None, (part.step_times, *part.learning, part.phases))
                else:
                    yield from filter(None, (part.roofline, *(table.chart for table in part.tables)))
        yield from (part.chart for part in self.scalings if part.chart)
        yield from (repeat.chart for part in self.cells for repeat in part.repeats if repeat.chart)
