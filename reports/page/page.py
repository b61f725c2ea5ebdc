"""Everything that the templates print. It is built whole before the first template runs; a template only prints and formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """One entry of the overview: a ranked cell with its ratio, a cell that is not ranked, the reason why the plan left it out,
    or nothing."""

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
class GroupSection:
    """One group of comparable cells of a workload, with all its plots and tables."""

    group: Group
    title: str
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
    code: tuple[Source, ...] = ()


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
class Page:
    title: str
    lead: str
    colours: Mapping[str, str]  # framework -> the name of its colour
    marks: Mapping[str, str]  # framework -> its symbol
    runs: tuple[Run, ...]
    answers: tuple[Answer, ...]
    changes: tuple[str, ...]
    shared: tuple[str, ...]  # the caveats that all answers have
    overview: Overview
    sections: tuple[WorkloadSection, ...]
    scalings: tuple[tuple[Scaling, Chart | None], ...]
    history: History | None
    environments: tuple[Environment, ...]
    skipped: tuple[Skipped, ...]
    cells: tuple[tuple[MeasuredCell, tuple[RepeatSection, ...]], ...]

    @property
    def failed(self) -> tuple[MeasuredCell, ...]:
        return tuple(cell for cell, _ in self.cells if cell.status != "ok")

    @property
    def charts(self) -> Iterator[Chart]:
        """Every plot of the page, in the order of the page."""
        for section in self.sections:
            for part in section.groups:
                if isinstance(part, GroupSection):
                    yield from filter(None, (part.step_times, *part.learning, part.phases))
                else:
                    yield from filter(None, (part.roofline, *(table.chart for table in part.tables)))
        yield from (chart for _, chart in self.scalings if chart)
        yield from (repeat.chart for _, repeats in self.cells for repeat in repeats if repeat.chart)
