"""From the tables of stored runs to the page's records: every plot drawn, every table filled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from markupsafe import Markup

from bench import identity
from reports import wording
from reports.answers import across, findings, left, run_history, scaling, short
from reports.answers.across import Across
from reports.answers.findings import Finding
from reports.answers.health import NOT_JUDGED, NOTHING_BEGUN, NOTHING_MEASURED, Health
from reports.data import curves, operators, profiles, roofline, telemetry_signals
from reports.data.costs import COSTS
from reports.data.environments import environments
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Rate, Repeat, Tables
from reports.data.operators import RateCurve
from reports.data.roofline import Ceiling
from reports.data.telemetry_signals import Neighbours
from reports.page import fleet_charts, glance, operator_charts, plots, results, rosetta_stone, signs
from reports.page.drawing import Chart
from reports.page.history_chart import changes_over_time
from reports.page.kept_code import SourceListing, listing
from reports.page.page import (
    CellSection,
    GroupSection,
    OperatorGroup,
    Page,
    RateRow,
    RateTable,
    RepeatSection,
    Slice,
    WorkloadSection,
)
from reports.page.samples import sequence
from runner.results.statistics import Estimate

# All repeats share these. So a page of a thousand cells still opens.
LISTED_IN_ALL = 20_000
LISTED_FOR_ONE = 200


def page_of(data: Tables, health: Health = NOT_JUDGED) -> Page:
    if not any(cell.status == "ok" for cell in data.cells) and not (health.cells or health.fleets):
        # Advice on references would be no help here.
        health = NOTHING_MEASURED if any(cell.status != "missing" for cell in data.cells) else NOTHING_BEGUN
    found = findings.findings(data)
    shown = results.slices(found, data)
    first = results.of_slice(found, shown[0]) if shown else []
    effects = {workload.anchor: _Effects.of(workload, data) for workload in data.ranked}
    ladders = across.ladders(data)
    ladder = plots.ladder(_only(data, first))
    more_ladders = _elsewhere(plots.ladder(_only(data, [finding for finding in found if finding not in first])))
    most = plots.points_limit(data)
    scalings = scaling.scalings(data)
    return Page(
        title=findings.title(data),
        where=findings.where(data),
        lead=findings.lead(data),
        pills=glance.pills(data),
        notes=findings.notes(data),
        answers=_linked(
            short.answers(
                first,
                shown[0].where if shown else "",
                ladders.values(),
                [table for effect in effects.values() for table in effect.devices],
                health,
                data.cells,
            ),
            has_ladder=bool(ladder or more_ladders),
        ),
        health=health,
        slices=shown,
        choices=results.choices(shown),
        has_energy=any("joules_per_item" in cell.costs for cell in data.cells),
        colours=signs.colours(sorted({cell.framework for cell in data.cells} | _in_rows(shown))),
        marks=signs.symbols(data.cells),
        runs=data.runs,
        findings=found,
        changes=findings.changes(
            data, ladders, {anchor: (*effect.precisions, *effect.devices) for anchor, effect in effects.items()}
        ),
        sections=tuple(
            _workload(workload, data, found, ladders, effects.get(workload.anchor), most) for workload in data.workloads
        ),
        ladders=ladder,
        more_ladders=more_ladders,
        gpus=fleet_charts.gpus(health),
        scalings=scalings,
        efficiency=plots.scaling([each for each in scalings if not each.on_a_cpu]),
        efficiency_of_cpus=plots.scaling([each for each in scalings if each.on_a_cpu]),
        efficiency_at_most=plots.scaling(scalings, forecast=True),
        over_time=changes_over_time(data) if len(data.runs) > 1 else (),
        history=run_history.history(data) if len(data.runs) > 1 else None,
        environments=environments(data),
        skipped=data.skipped,
        waiting=data.waiting,
        go_on=tuple(entry.command for entry in left.left(data.cells) if entry.cells),
        cells=_cells(data, most),
    )


def _linked(answers: Iterable[short.Answer], *, has_ladder: bool) -> tuple[short.Answer, ...]:
    """The answers, each with a link only where the page has what it leads to."""
    return tuple(answer if has_ladder or answer.link != "ladder" else replace(answer, link="") for answer in answers)


def _only(data: Tables, shown: Sequence[Finding]) -> Tables:
    """The tables with the groups of these findings only."""
    anchors = {finding.group.anchor for finding in shown}
    return replace(
        data,
        workloads=tuple(
            replace(workload, groups=tuple(group for group in workload.groups if group.anchor in anchors))
            for workload in data.workloads
        ),
    )


def _elsewhere(charts: Iterable[Chart]) -> tuple[Chart, ...]:
    """The charts under other ids: those of the first screen are numbered too."""
    return tuple(replace(chart, id=f"{chart.id}-elsewhere") for chart in charts)


def _in_rows(shown: Iterable[Slice]) -> set[str]:
    return {row.framework for part in shown for row in part.rows}


@dataclass(frozen=True)
class _Effects:
    """The effects of another precision and another device in a workload. The page shows them, and an answer rests on them."""

    precisions: tuple[Across, ...]
    devices: tuple[Across, ...]

    @classmethod
    def of(cls, workload: MeasuredWorkload, data: Tables) -> _Effects:
        return cls(across.precisions(workload, data.cells), across.devices(workload, data.cells))


def _workload(
    workload: MeasuredWorkload,
    data: Tables,
    found: Sequence[Finding],
    ladders: Mapping[str, Across],
    effects: _Effects | None,
    most: int,
) -> WorkloadSection:
    if effects is None:
        return WorkloadSection(workload, [_operator_group(group, data) for group in workload.groups])
    tables = (("Across precisions", "Precision", effects.precisions), ("Across devices", "Device", effects.devices))
    own = [finding for finding in found if finding.workload is workload]
    return WorkloadSection(
        workload,
        [
            _group(finding, group, workload, data, ladders.get(group.anchor), most)
            for finding, group in zip(own, workload.groups, strict=True)
        ],
        tuple(table for table in tables if table[2]),
        _code(workload),
    )


def _group(
    finding: Finding, group: Group, workload: MeasuredWorkload, data: Tables, versions: Across | None, most: int
) -> GroupSection:
    ratios = {entry.cell.anchor: entry.ratio for entry in group.ranked}
    costs = tuple(cost for cost in COSTS if any(cost.name in cell.costs for cell in group.cells))
    learning = plots.learning(group, workload, most)
    return GroupSection(
        group=group,
        title=f"{group.key.device}, {group.key.precision}, {group.key.preset}",
        finding=finding,
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
        time_to=curves.time_to(group, workload) if workload.learns else None,
        phases=plots.phases(group),
        profiles=profiles.shown(group, data.profiles),
    )


def _variants(group: Group) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    cells = sorted((cell for cell in group.cells if cell.variant[0]), key=lambda cell: cell.variant)
    for variant, alike in groupby(cells, key=lambda cell: cell.variant):
        yield variant, tuple(cell.label for cell in alike)


def _code(workload: MeasuredWorkload) -> tuple[SourceListing, ...]:
    """The code that measured a workload's cells, a file a framework: only where it is this checkout's."""
    cells = [cell for group in workload.groups for cell in group.cells]
    here = identity.code_digests({(cell.framework, workload.name) for cell in cells})
    ran = {cell.framework for cell in cells if cell.row.get("code_sha256") == here[cell.framework, workload.name]}
    return tuple(
        listing(workload.name, framework, here[framework, workload.name])
        for framework in rosetta_stone.with_code(workload.name, ran)
    )


def _operator_group(group: Group, data: Tables) -> OperatorGroup:
    measured = operators.curves(group, data.operations)
    roofs = roofline.ceilings(measured)
    tables = (
        RateTable(
            curve,
            operator_charts.operator(f"operation-{group.anchor}-{at}", curve, roofs),
            tuple(_rate_rows(curve, roofs)),
        )
        for at, curve in enumerate(measured, start=1)
    )
    return OperatorGroup(
        group,
        tuple(roofs.values()),
        operator_charts.roofline(f"roofs-{group.anchor}", measured, roofs.values()),
        tuple(tables),
    )


def _rate_rows(curve: RateCurve, roofs: Mapping[str, Ceiling]) -> Iterator[RateRow]:
    for size, rates in curve.rows():
        best = curve.best(rates)
        entries = tuple(
            _rate(curve, rate, rate is best, roofs.get(cell.run_id)) if rate else None
            for (cell, _), rate in zip(curve.cells, rates, strict=True)
        )
        yield size, operators.size_class(next(rate.mop for rate in rates if rate)), entries


def _rate(curve: RateCurve, rate: Rate, best: bool, ceiling: Ceiling | None) -> tuple[str, str]:
    """The table's text, and the one below it."""
    if curve.refused(rate):
        return "refused", Markup("above the device's peak")
    share, bus = curve.share(rate), curve.bus_bandwidth(rate)
    of_ceiling = ceiling.share(curve, rate) if ceiling else None
    below = [wording.duration(rate.seconds)]
    below += [] if share is None else [wording.percent(share) + (" of the peak" if ceiling else "")]
    below += [] if of_ceiling is None else [f"{wording.percent(of_ceiling)} of the ceiling"]
    below += [] if bus is None else [f"bus {wording.number(bus)} GB/s"]
    return wording.number(curve.value(rate)) + "*" * best + "†" * (rate.shift is not None), ", ".join(below)


def _cells(data: Tables, most: int) -> tuple[CellSection, ...]:
    repeats = max(1, sum(len(cell.repeats) for cell in data.cells))
    listed = max(20, min(LISTED_FOR_ONE, LISTED_IN_ALL // repeats))
    neighbours = telemetry_signals.beside(data)
    return tuple(
        CellSection(
            cell,
            workload.anchor,
            tuple(_repeat(cell, repeat, neighbours, most, listed) for repeat in cell.repeats),
            tuple((cost, cost.written(cell.costs[cost.name])) for cost in COSTS if cost.name in cell.costs),
            workload.items,
            *_rank(cell, group),
        )
        for workload in data.workloads
        for group in workload.groups
        for cell in group.cells
    )


def _rank(cell: MeasuredCell, group: Group) -> tuple[str, Estimate | None]:
    """A cell's rank in its group with the ratio to the fastest, or why it has none."""
    for at, entry in enumerate(group.ranked, start=1):
        if entry.cell.anchor == cell.anchor:
            return f"{at} of {len(group.ranked)}", None if entry.is_first else entry.ratio
    return f"not ranked: {cell.unranked}", None


def _repeat(
    cell: MeasuredCell, repeat: Repeat, neighbours: Mapping[tuple[str, int], Neighbours], most: int, listed: int
) -> RepeatSection:
    beside = neighbours.get((cell.anchor, repeat.number), Neighbours((), 0))
    return RepeatSection(repeat, beside, sequence(cell, repeat, most), _listed(repeat, listed))


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
