"""From the tables of stored runs to the page's records: every plot drawn, every table filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from markupsafe import Markup

from bench import identity
from reports import text
from reports.answers import across, findings, history, scaling
from reports.answers.across import Across
from reports.answers.findings import Finding
from reports.data import ceilings, curves, operators, profiles, telemetry
from reports.data.ceilings import Ceiling
from reports.data.costs import COSTS
from reports.data.environments import environments
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Rate, Repeat, Tables
from reports.data.operators import RateCurve
from reports.data.telemetry import Neighbours
from reports.page import charts, plots, rosetta
from reports.page.overview import overview
from reports.page.page import (
    Answer,
    Bar,
    GroupSection,
    OperatorGroup,
    Page,
    RateRow,
    RateTable,
    RepeatSection,
    WorkloadSection,
)

# All repeats share these. So a page of a thousand cells still opens.
LISTED_IN_ALL = 20_000
LISTED_FOR_ONE = 200
MOST_BARS = 12  # in one answer; the table has the other cells


def page_of(data: Tables) -> Page:
    answers = findings.findings(data)
    shared = findings.shared(answers)
    ladders = across.ladders(data)
    most = plots.points_limit(data)
    return Page(
        title=findings.title(data),
        lead=findings.lead(data),
        colours=charts.colours(sorted({cell.framework for cell in data.cells})),
        marks=charts.symbols(data.cells),
        runs=data.runs,
        answers=tuple(_answer(finding, shared) for finding in answers),
        changes=findings.changes(data, ladders),
        shared=shared,
        overview=overview(data),
        sections=tuple(_workload(workload, data, ladders, most) for workload in data.workloads),
        scalings=tuple((shown, plots.scaling(shown)) for shown in scaling.scalings(data)),
        history=history.history(data) if len(data.runs) > 1 else None,
        environments=environments(data),
        skipped=data.skipped,
        cells=_cells(data, most),
    )


def _answer(finding: Finding, shared: tuple[str, ...]) -> Answer:
    ranked = finding.group.ranked
    caveats = tuple(caveat for caveat in finding.caveats if caveat not in shared)
    if len(ranked) < 2:
        return Answer(finding, (), 0, caveats)
    names = findings.names(finding.group.cells)
    ratios = [entry.ratio for entry in ranked[:MOST_BARS]]
    longest = max(ratio.value for ratio in ratios)
    end = min(max([longest, *(ratio.high for ratio in ratios if ratio.high is not None)]), 1.6 * longest)
    bars = []
    for at, entry in enumerate(ranked[:MOST_BARS]):
        ratio, interval = entry.ratio, None
        if at and ratio.low is not None and ratio.high is not None:
            width = 92 * (min(ratio.high, 1.2 * end) - ratio.low) / end
            interval = round(92 * ratio.low / end, 2), round(width, 2)
        bars.append(Bar(entry, names[entry.cell.anchor], round(92 * ratio.value / end, 2), interval))
    return Answer(finding, tuple(bars), len(ranked) - len(bars), caveats)


def _workload(workload: MeasuredWorkload, data: Tables, ladders: Mapping[str, Across], most: int) -> WorkloadSection:
    if workload.task == "operators":
        return WorkloadSection(workload, [_operator_group(group, data) for group in workload.groups])
    effects = (
        ("Across precisions", "Precision", across.precisions(workload)),
        ("Across devices", "Device", across.devices(workload)),
    )
    return WorkloadSection(
        workload,
        [_group(group, workload, data, ladders.get(group.anchor), most) for group in workload.groups],
        tuple(effect for effect in effects if effect[2]),
        _code(workload),
    )


def _group(group: Group, workload: MeasuredWorkload, data: Tables, versions: Across | None, most: int) -> GroupSection:
    ratios = {entry.cell.anchor: entry.ratio for entry in group.ranked}
    costs = tuple(cost for cost in COSTS if any(cost.name in cell.costs for cell in group.cells))
    learning = plots.learning(group, workload, most)
    return GroupSection(
        group=group,
        title=f"{group.key.device}, {group.key.precision}, {group.key.preset}",
        rows=tuple((cell, ratios.get(cell.anchor), workload.outside_band(cell)) for cell in group.cells),
        variants=tuple(_variants(group)),
        step_times=plots.step_times(group, most),
        versions=versions,
        costs=costs,
        cost_rows=tuple(
            (cell, tuple(cost.written(cell.costs.get(cost.name)) for cost in costs))
            for cell in group.cells
            if cell.costs
        ),
        learning=learning,
        by_class=curves.by_class(group),
        time_to=curves.time_to(group, workload) if learning else None,
        phases=plots.phases(group),
        profiles=profiles.shown(group, data.profiles),
    )


def _variants(group: Group) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    cells = sorted((cell for cell in group.cells if cell.variant[0]), key=lambda cell: cell.variant)
    for variant, alike in groupby(cells, key=lambda cell: cell.variant):
        yield variant, tuple(cell.label for cell in alike)


def _code(workload: MeasuredWorkload) -> tuple[rosetta.Source, ...]:
    """The code that measured a workload's cells, a file a framework: only where it is this checkout's."""
    cells = [cell for group in workload.groups for cell in group.cells]
    here = identity.code_digests({(cell.framework, workload.name) for cell in cells})
    ran = {cell.framework for cell in cells if cell.row.get("code_sha256") == here[cell.framework, workload.name]}
    return tuple(rosetta.sources(workload.name, ran))


def _operator_group(group: Group, data: Tables) -> OperatorGroup:
    measured = operators.curves(group, data.operations)
    roofs = ceilings.ceilings(measured)
    tables = (
        RateTable(curve, plots.operator(f"operation-{group.anchor}-{at}", curve), tuple(_rate_rows(curve, roofs)))
        for at, curve in enumerate(measured, start=1)
    )
    return OperatorGroup(group, tuple(roofs.values()), plots.roofline(group, measured, roofs.values()), tuple(tables))


def _rate_rows(curve: RateCurve, roofs: Mapping[str, Ceiling]) -> Iterator[RateRow]:
    for size, rates, best in curve.rows():
        entries = tuple(
            _rate(curve, rate, len(rates) > 1 and curve.value(rate) == best, roofs.get(cell.run_id)) if rate else None
            for (cell, _), rate in zip(curve.cells, rates, strict=True)
        )
        yield size, operators.size_class(next(rate.mop for rate in rates if rate)), entries


def _rate(curve: RateCurve, rate: Rate, best: bool, ceiling: Ceiling | None) -> tuple[str, str]:
    """What stands in the table, and what stands below it."""
    if curve.refused(rate):
        return "refused", Markup("above the device's peak")
    share, bus = curve.share(rate), curve.bus_bandwidth(rate)
    of_ceiling = ceiling.share(curve, rate) if ceiling else None
    below = [text.duration(rate.seconds)]
    below += [] if share is None else [text.percent(share) + (" of the peak" if ceiling else "")]
    below += [] if of_ceiling is None else [f"{text.percent(of_ceiling)} of the ceiling"]
    below += [] if bus is None else [f"bus {text.number(bus)} GB/s"]
    return text.number(curve.value(rate)) + "*" * best + "†" * (rate.shift is not None), ", ".join(below)


def _cells(data: Tables, most: int) -> tuple[tuple[MeasuredCell, tuple[RepeatSection, ...]], ...]:
    repeats = max(1, sum(len(cell.repeats) for cell in data.cells))
    listed = max(20, min(LISTED_FOR_ONE, LISTED_IN_ALL // repeats))
    neighbours = telemetry.beside(data)
    return tuple(
        (cell, tuple(_repeat(cell, repeat, neighbours, most, listed) for repeat in cell.repeats)) for cell in data.cells
    )


def _repeat(
    cell: MeasuredCell, repeat: Repeat, neighbours: Mapping[tuple[str, int], Neighbours], most: int, listed: int
) -> RepeatSection:
    beside = neighbours.get((cell.anchor, repeat.number), Neighbours((), 0))
    return RepeatSection(repeat, beside, plots.sequence(cell, repeat, most), _listed(repeat, listed))


def _listed(repeat: Repeat, most: int) -> str:
    """The windows of a repeat as comma-separated lines, the first `most` of them."""
    windows = repeat.windows
    lines = ["index,stage,begin_seconds,seconds,steps,items"]
    for at in range(min(most, len(windows))):
        index, steps, items = (int(column[at]) for column in (windows.index, windows.steps, windows.items))
        lines.append(f"{index},{windows.stage[at]},{windows.begin[at]:.6f},{windows.seconds[at]:.6f},{steps},{items}")
    if len(windows) > most:
        lines.append(f"… {len(windows) - most} more in the stored file")
    return "\n".join(lines)
