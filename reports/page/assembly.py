"""From the tables of stored runs to the page's records: every plot drawn, every table filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from markupsafe import Markup

from bench import rules
from reports import wording
from reports.answers import contrast, scaling, short
from reports.answers.findings import Finding
from reports.answers.health import NOT_JUDGED, NOTHING_BEGUN, NOTHING_MEASURED, Health
from reports.answers.left import Left, lacks
from reports.answers.overview import Overview
from reports.data import curves, operators, profiles, telemetry_signals
from reports.data.costs import COSTS
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Rate, Rates, Repeat, Tables
from reports.data.operators import Ceiling, RateCurve, ceilings
from reports.data.telemetry_signals import Neighbours, environments
from reports.page import cache, drawing, page, plots, results
from reports.page.drawing import Axis, Chart, LegendEntry, Picture, reaching
from runner.results.cells import MISSING
from runner.results.statistics import Estimate

# Single operations on the page: tables of rates, shares of the ceiling by size, and all rates under the roofs that bound them.


def operator_section(group: Group, stored: Mapping[tuple[str, str], Rates]) -> page.OperatorGroup:
    """The tables and pictures of one group of comparable cells. `stored` are the rates of all cells."""
    measured = operators.curves(group, stored)
    roofs = ceilings(measured)
    tables = (
        page.RateTable(
            curve,
            operator(f"operation-{group.anchor}-{at}", curve, roofs),
            tuple(_rate_rows(curve, roofs)),
        )
        for at, curve in enumerate(measured, start=1)
    )
    return page.OperatorGroup(
        group,
        tuple(roofs.values()),
        roofline(f"roofs-{group.anchor}", measured, roofs.values()),
        tuple(tables),
    )


def _rate_rows(curve: RateCurve, roofs: Mapping[str, Ceiling]) -> Iterator[page.RateRow]:
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
    below = [wording.duration(rate.seconds), *rate.kernels]
    below += [] if share is None else [wording.percent(share) + (" of the peak" if ceiling else "")]
    below += [] if of_ceiling is None else [f"{wording.percent(of_ceiling)} of the ceiling"]
    below += [] if bus is None else [f"bus {wording.number(bus)} GB/s"]
    return wording.number(curve.value(rate)) + "*" * best + "†" * (rate.shift is not None), ", ".join(below)


def operator(place: str, curve: RateCurve, roofs: Mapping[str, Ceiling]) -> Chart | None:
    """One operation by size, a line for each cell: its share of the measured ceiling or of the datasheet's peak, from 0 to 1.

    If neither is known, its rate. The size is in operations, or in bytes as the rate.
    """
    believed = [(cell, [rate for rate in rates if not curve.refused(rate)]) for cell, rates in curve.cells]
    shares = [
        (cell, [(rate, _share(curve, rate, roofs.get(cell.run_id))) for rate in rates]) for cell, rates in believed
    ]
    known = [(cell, [(rate, share) for rate, share in each if share is not None]) for cell, each in shares]
    by_share = any(each for _, each in known)
    if not by_share:
        known = [(cell, [(rate, curve.value(rate)) for rate in rates]) for cell, rates in believed]
    known = [(cell, [(rate, y) for rate, y in each if _size(curve, rate) > 0]) for cell, each in known]
    points = [(_size(curve, rate), y) for _, each in known for rate, y in each]
    if not points:
        return None
    top = 1.05 * max(y for _, y in points)
    y_axis = Axis(0.0, max(1.0, top) if by_share else top, 120, 0)
    picture = Picture(120, reaching((x for x, _ in points), 0, 100, log=True), y_axis)
    picture.grid(
        "bytes a run" if curve.by_traffic else "million operations a run", "of the ceiling" if by_share else curve.unit
    )
    if by_share:
        picture.line([(0, picture.at(1)), (100, picture.at(1))], "dotted muted")
    for cell, each in known:
        shape, tone = page.sign_of(cell)
        places = [(picture.x(_size(curve, rate)), picture.at(y)) for rate, y in each]
        if len(places) > 1:
            picture.line(places, f"line {tone}", cell.label)
        for (x, y), (rate, value) in zip(places, each, strict=True):
            rated = f"{wording.number(curve.value(rate))} {curve.unit}" + (
                f", {wording.percent(value)} of the ceiling" if by_share else ""
            )
            picture.mark(x, y, shape, tone, f"{cell.label}, {rate.size}: {rated}")
    caption, words = f"{curve.operation}, {curve.direction}", f"{curve.operation} {curve.direction}: "
    words += ("share of the ceiling" if by_share else curve.unit) + " by size, a line for each cell; "
    return picture.chart(place, words + "the table below has the numbers.", caption, _keys(cell for cell, _ in known))


def _share(curve: RateCurve, rate: Rate, ceiling: Ceiling | None) -> float | None:
    """Of the measured ceiling where there is one, else of the datasheet's peak."""
    return ceiling.share(curve, rate) if ceiling else curve.share(rate)


def _size(curve: RateCurve, rate: Rate) -> float:
    return rate.bytes if curve.by_traffic else rate.mop


def roofline(place: str, curves: Sequence[RateCurve], ceilings: Iterable[Ceiling]) -> Chart | None:
    """Each operation at its fastest size, by its operations a byte, under the measured roofs and those of the datasheet.

    Both axes are logarithmic (Williams, Waterman and Patterson 2009, "Roofline"). None where no roof is known.
    """
    points = []
    for curve in curves:
        for cell, rates in curve.cells:
            believed = [rate for rate in rates if rate.mop and not curve.refused(rate)]
            if believed:
                points.append((curve, cell, max(believed, key=lambda rate: rate.gflops)))
    across = [rate.mop * 1e6 / rate.bytes for _, _, rate in points]
    roofs = [(f"measured in {ceiling.run_id}", _measured(ceiling), "line dashed") for ceiling in ceilings]
    peak = next((curve.peak for curve in curves if curve.peak), None)
    if peak is not None:
        roofs.append(("datasheet", (peak.flops, peak.bytes), "dotted"))
    lines = [(name, _roof(*bounds, across), kind) for name, bounds, kind in roofs if any(bounds)]
    if not points or not lines:
        return None
    levels = [rate.gflops for _, _, rate in points] + [y for _, line, _ in lines for _, y in line]
    picture = Picture(260, reaching(across, 0, 100, log=True), reaching(levels, 260, 0, log=True))
    picture.grid("operations a byte", "GFLOP/s")
    for name, line, kind in lines:
        picture.line([(picture.x(x), picture.at(y)) for x, y in line], kind, name)
    for (curve, cell, rate), x in zip(points, across, strict=True):
        shape, tone = page.sign_of(cell)
        hover = f"{cell.label}: {curve.operation} {curve.direction} {rate.size}, {wording.number(rate.gflops)} GFLOP/s"
        picture.mark(picture.x(x), picture.at(rate.gflops), shape, tone, hover)
    words = "GFLOP/s of each operation by its operations a byte, under the device's roofs; the tables below have the numbers."
    caption = "A marker is an operation of a cell at the size where it was fastest. Dashed: the roof that was measured in this run"
    caption += "; dotted: the datasheet's." if peak is not None else "."
    return picture.chart(place, words, caption, _keys(cell for _, cell, _ in points))


def _keys(cells: Iterable[MeasuredCell]) -> list[LegendEntry]:
    return [LegendEntry(*page.sign_of(cell), cell.label) for cell in {cell.anchor: cell for cell in cells}.values()]


def _measured(ceiling: Ceiling) -> tuple[float | None, float | None]:
    return ceiling.work.value if ceiling.work else None, ceiling.traffic.value if ceiling.traffic else None


def _roof(work: float | None, traffic: float | None, across: Sequence[float]) -> list[tuple[float, float]]:
    """The line that no rate crosses: the memory bounds it on the slope, the arithmetic on the level. Only what is known is drawn."""
    low, high = min(across, default=1.0), max(across, default=1.0)
    knee = [work / traffic] if work and traffic and low < work / traffic < high else []
    return [(at, min(bound for bound in (work, traffic and traffic * at) if bound) / 1e9) for at in (low, *knee, high)]


# For each repeat the fewest and the most, and those of all repeats together: a page of a thousand cells still opens.
POINTS = (40, 400, 40_000)  # in a picture
LISTED = (20, 200, 20_000)  # windows


def page_of(overview: Overview, health: Health = NOT_JUDGED) -> page.Page:
    data = overview.tables
    statuses = {cell.status for cell in data.cells}
    if "ok" not in statuses and not (health.cells or health.fleets):
        # Advice on references would be no help here.
        health = NOTHING_BEGUN
        if statuses - {MISSING}:
            health = NOTHING_MEASURED
    pills, most, listed = _pills(data, overview.left, overview.busy), _of_each(data, *POINTS), _of_each(data, *LISTED)
    neighbours = telemetry_signals.beside(data)
    sections = tuple(_workload(workload, overview, most) for workload in data.workloads)
    slices = results.slices(overview.findings, data)
    choices = results.choices(slices)
    here = {column.anchor for column in slices[0].columns} if slices else set()
    first = [finding for finding in overview.findings if finding.group.anchor in here]
    ladders = plots.ladder(data.workloads, [group for group in data.groups if group.anchor in here])
    others = [group for group in data.groups if group.anchor not in here]
    # Under other ids: those of the first screen are numbered too.
    more_ladders = plots.ladder(data.workloads, others, "-elsewhere")
    scalings = scaling.scalings(data)
    devices = [table for effect in overview.effects.values() for table in effect.devices]
    where = slices[0].where if slices else ""
    answers = short.answers(first, where, overview.ladders.values(), devices, health, data.cells)
    if not (ladders or more_ladders):
        answers = tuple(replace(answer, link="") if answer.link == "ladder" else answer for answer in answers)
    frameworks = {cell.framework for cell in data.cells} | {row.framework for part in slices for row in part.rows}
    headline, *further = answers
    return page.Page(
        overview=overview,
        headline=headline,
        pills=pills,
        notes=tuple((head, rest) for head, _, rest in (note.partition(": ") for note in overview.notes)),
        answers=tuple(answer for answer in further if answer.is_one),
        unanswered=tuple(answer for answer in further if not answer.is_one),
        health=health,
        slices=slices,
        choices=choices,
        has_energy=any("joules_per_item" in cell.costs for cell in data.cells),
        colours=page.sign_colours(sorted(frameworks)),
        marks=page.sign_symbols(data.cells),
        sections=sections,
        ladders=ladders,
        more_ladders=more_ladders,
        gpus=drawing.chart_of_gpus(health),
        scalings=scalings,
        efficiency=plots.scaling([each for each in scalings if not each.on_a_cpu]),
        efficiency_of_cpus=plots.scaling([each for each in scalings if each.on_a_cpu]),
        efficiency_at_most=plots.scaling(scalings, forecast=True),
        over_time=plots.changes_over_time(data, overview.history.again) if overview.history else (),
        environments=environments(data),
        go_on=tuple(entry.command for entry in overview.left if entry.cells),
        cells=_cells(data, neighbours, most, listed),
    )


def _of_each(data: Tables, fewest: int, most: int, in_all: int) -> int:
    """How many of something a page shows of each repeat."""
    repeats = max(1, sum(len(cell.repeats) for cell in data.cells))
    return max(fewest, min(most, in_all // repeats))


# -- The pills under the title -------------------------------------------------------------------------------------------------------


def _pills(data: Tables, left: Sequence[Left], busy: str) -> tuple[page.Pill, ...]:
    """`left` is the rest of each run that is not complete, and `busy` a doubt about the machine."""
    return (
        *_ends(data, left),
        *_sure(data, left),
        *([page.Pill(busy, "warn", "measurements")] if busy else []),
        *_limits(data),
    )


def _ends(data: Tables, left: Sequence[Left]) -> Iterator[page.Pill]:
    cells = data.grouped
    good = sum(cell.status == "ok" and cell.parity_passed is not False for cell in cells)
    yield page.Pill(f"{good} of {len(data.cells)} ok", "good" if good == len(data.cells) else "")
    bad = Counter(results.failure(cell) for cell in cells if cell.status != "ok" or cell.parity_passed is not True)
    for (kind, words), count in bad.most_common():
        if kind == "failed":
            yield page.Pill(f"{count} {words}", "bad", "not-run")
    unfit = Counter(results.failure(cell)[1] for cell in data.cells if not cell.unsound and cell.unranked)
    for words, count in unfit.most_common():
        yield page.Pill(f"{count} not ranked: {words}", "warn", "measurements")
    for entry in left:
        yield page.Pill(entry.count, "warn", "not-run")
    if skipped := sum(len(entry.rows) for entry in data.skipped):
        yield page.Pill(f"{skipped} skipped", "", "not-run")


def _sure(data: Tables, left: Sequence[Left]) -> Iterator[page.Pill]:
    ranked = [entry.cell for group in data.groups for entry in group.ranked]
    if not ranked:
        return
    repeats = [len(cell.measured) for cell in ranked]
    if max(repeats) == 1:
        lacking = {cell.run_id for cell in ranked if lacks(cell)}
        commands = [entry.command for entry in left if entry.run_id in lacking]
        yield page.Pill(f"measured once: {'; '.join(commands) or 'use --repeats 3'}", "warn", "method")
        return
    yield page.Pill(f"{_range(repeats)} repeats{_typical(ranked)}", "", "method")


def _range(counts: Sequence[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _typical(cells: Sequence[MeasuredCell]) -> str:
    widths = [width for cell in cells if cell.step and (width := cell.step.half_width) is not None]
    return f", typically ± {wording.percent(float(np.median(widths)), 2)}" if widths else ""


def _limits(data: Tables) -> Iterator[page.Pill]:
    cells = data.grouped
    if cells and all(cell.short for cell in cells if cell.status == "ok"):
        presets = wording.listing(sorted({cell.key.preset for cell in cells}))
        yield page.Pill(f"{presets} run: compare speed, not accuracy", "warn", "method")
    if any(cell.key.data_source == "generated" and not rules.is_own(cell.key.workload) for cell in cells):
        yield page.Pill("generated stand-in data", "warn", "method")


# -- Workloads -------------------------------------------------------------------------------------------------------------------------


def _workload(workload: MeasuredWorkload, overview: Overview, most: int) -> page.WorkloadSection:
    effects = overview.effects.get(workload.anchor)
    if effects is None:
        return page.WorkloadSection(
            workload, [operator_section(group, overview.tables.operations) for group in workload.groups]
        )
    tables = (("Across precisions", "Precision", effects.precisions), ("Across devices", "Device", effects.devices))
    own = [finding for finding in overview.findings if finding.workload is workload]
    return page.WorkloadSection(
        workload,
        [_group(finding, group, workload, overview, most) for finding, group in zip(own, workload.groups, strict=True)],
        tuple(table for table in tables if table[2]),
        cache.listings(workload),
    )


def _group(
    finding: Finding, group: Group, workload: MeasuredWorkload, overview: Overview, most: int
) -> page.GroupSection:
    ratios = {entry.cell.anchor: entry.ratio for entry in group.ranked}
    costs = tuple(cost for cost in COSTS if any(cost.name in cell.costs for cell in group.cells))
    return page.GroupSection(
        group=group,
        title=f"{group.key.device}, {group.key.precision}, {group.key.preset}",
        finding=finding,
        rows=tuple((cell, ratios.get(cell.anchor), workload.outside_band(cell)) for cell in group.cells),
        variants=tuple(_variants(group)),
        versions=overview.ladders.get(group.anchor),
        costs=costs,
        cost_rows=tuple(
            (cell, tuple(cost.written(cell.costs.get(cost.name)) for cost in costs))
            for cell in group.cells
            if cell.costs
        ),
        step_times=plots.step_times(group, most),
        learning=plots.learning(group, workload, most),
        phases=plots.phases(group),
        by_class=curves.by_class(group),
        time_to=curves.time_to(group, workload) if workload.learns else None,
        profiles=profiles.shown(group, overview.tables.profiles),
    )


def _variants(group: Group) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    cells = sorted((cell for cell in group.cells if cell.variant[0]), key=lambda cell: cell.variant)
    for variant, alike in groupby(cells, key=lambda cell: cell.variant):
        yield variant, tuple(cell.label for cell in alike)


# -- Measurements ----------------------------------------------------------------------------------------------------------------------


def _cells(
    data: Tables, neighbours: Mapping[tuple[str, int], Neighbours], most: int, listed: int
) -> tuple[page.CellSection, ...]:
    return tuple(
        page.CellSection(
            cell,
            workload.anchor,
            workload.items,
            *_rank(cell, group),
            contrast.between_images(group.ranked[0].cell, cell) if group.ranked else "",
            tuple((cost, cost.written(cell.costs[cost.name])) for cost in COSTS if cost.name in cell.costs),
            tuple(_repeat(cell, repeat, neighbours, most, listed) for repeat in cell.repeats),
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
) -> page.RepeatSection:
    beside = neighbours.get((cell.anchor, repeat.number), Neighbours((), 0))
    windows = _listed(repeat, listed)
    return page.RepeatSection(repeat, beside, results.sequence(cell, repeat, most), windows)


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
