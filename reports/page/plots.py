"""The pictures that compare cells. A function returns the finished picture, or None where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from reports import wording
from reports.answers.across import version_key
from reports.answers.contrast import Contrast, Side, differences
from reports.answers.scaling import Scaling
from reports.data.curves import of_class
from reports.data.model import Curve, Group, MeasuredCell, MeasuredWorkload, Tables
from reports.page import page
from reports.page.drawing import Axis, Chart, LegendEntry, Picture, reaching, thinned, uprights
from runner.results.statistics import Array, Estimate
from runner.text import visible

# Points of all curves in one picture; of one curve, the fewest.
POINTS_IN_CURVES, FEWEST_POINTS = 4000, 8
# A curve of fewer evaluations at the same steps does not show how networks learn.
FEWEST_EVALUATIONS = 5
_ROW = 48  # pixels of one cell
_MOST_EVENTS = 12  # in one picture; the table has the others
_BELOW_NUMBER = 4  # pixels: an event's line begins so far below the base line of its number
_DASHES = ("", "dashed", "dotted", "dashed-dotted")


def step_times(group: Group, most: int) -> Chart | None:
    """Milliseconds a step of each measured cell: a tick for each window, a marker with its interval for the step time."""
    cells = [(cell, cell.step) for cell in group.cells if cell.step is not None]
    if not cells:
        return None
    times = [1e3 * np.concatenate([repeat.steady_step_seconds for repeat in cell.repeats]) for cell, _ in cells]
    end = 1.08 * max(_reach(windows, step) for windows, (_, step) in zip(times, cells, strict=True))
    picture = Picture(_ROW * len(cells), Axis(0.0, end))
    picture.grid("milliseconds a step")
    for row, (windows, (cell, step)) in enumerate(zip(times, cells, strict=True)):
        top = _ROW * row
        shape, tone = page.sign_of(cell)
        picture.words(0, top + 14, cell.label, "name")
        picture.words(100, top + 14, "not ranked" if cell.unranked else wording.duration(step.value), "end name")
        shown = np.sort(windows[windows <= end])[thinned(len(windows), most)]
        picture.path(uprights(shown * (100 / end), top + 31, 9), f"ticks {tone}")
        if step.low is not None and step.high is not None:
            picture.interval(picture.x(1e3 * step.low), picture.x(1e3 * step.high), top + 24, f"line {tone}")
        hover = f"{cell.label}: {wording.duration(step.value)} a step, 95 % interval {wording.between(step, 1e3)} ms"
        picture.mark(picture.x(1e3 * step.value), top + 24, shape, tone, hover)
    caption = "Each tick is a measured window, the marker the step time, the bar its 95 % interval."
    hidden = sum(int(np.sum(windows > end)) for windows in times)
    if hidden:
        caption += f" Beyond the axis: {wording.plural(hidden, 'window')}, counted like all others."
    return picture.chart(f"steps-{group.anchor}", _described(cells), caption)


def _reach(windows: Array, step: Estimate) -> float:
    """How far the axis goes for a cell. Its rare long windows and a very wide interval may leave the axis; they must not stretch it."""
    upper = 1e3 * (step.value if step.high is None else step.high)
    return min(max(float(np.quantile(windows, 0.97)), upper), 3 * float(np.median(windows)))


def _described(cells: Iterable[tuple[MeasuredCell, Estimate]]) -> str:
    """The step times in words, for readers who do not see them."""
    parts = [
        f"{cell.label}: {wording.number(1e3 * step.value)} milliseconds, interval {wording.between(step, 1e3)}"
        for cell, step in cells
    ]
    return "Step times with 95 % intervals. " + "; ".join(parts)


def learning(group: Group, workload: MeasuredWorkload, most: int) -> tuple[Chart, ...]:
    """For each metric its curves over training seconds, then over steps: the page shows one of the two.

    A metric is drawn where all repeats of all cells were evaluated at the same steps, five times or more. Metrics of single
    classes have a table.
    """
    metrics: dict[tuple[str, str], list[tuple[MeasuredCell, Curve]]] = {}
    for cell in group.cells if workload.learns else ():
        for repeat in cell.repeats:
            for curve in repeat.curves:
                if not of_class(curve):
                    metrics.setdefault((curve.split, curve.name), []).append((cell, curve))
    drawn: list[Chart] = []
    for at, ((split, name), curves) in enumerate(sorted(metrics.items()), start=1):
        steps = [set(curve.steps[np.isfinite(curve.values)].tolist()) for _, curve in curves]
        if len(set.intersection(*steps)) >= FEWEST_EVALUATIONS:
            title = f"{'training' if split == 'train' else split} {name}"
            chance = workload.chance if name == workload.metric else None
            place = f"learning-{group.anchor}-{at}"
            drawn += [_curves(place, title, axis, curves, chance, most) for axis in ("seconds", "steps")]
    return tuple(drawn)


def _curves(
    place: str, title: str, axis: str, curves: Sequence[tuple[MeasuredCell, Curve]], chance: float | None, most: int
) -> Chart:
    lines = [(cell, curve.seconds if axis == "seconds" else curve.steps, curve.values) for cell, curve in curves]
    most = min(most, max(FEWEST_POINTS, POINTS_IN_CURVES // len(lines)))
    across = reaching((float(x) for _, xs, _ in lines for x in xs), 0, 100, zero=True)
    levels = [float(y) for _, _, ys in lines for y in ys] + ([chance] if chance is not None else [])
    picture = Picture(200, across, reaching(levels, 200, 0, zero=True))
    picture.grid(f"training {axis}")
    if chance is not None:
        picture.line([(0, picture.at(chance)), (100, picture.at(chance))], "dotted muted")
        picture.words(100, picture.at(chance) - 4, "chance", "end tick")
    images: dict[str, list[str]] = {}
    for cell, xs, ys in lines:
        same = images.setdefault(cell.framework, [])
        if cell.label not in same:
            same.append(cell.label)
        shape, tone = page.sign_of(cell)
        finite = np.isfinite(ys) & np.isfinite(xs)
        part = thinned(int(finite.sum()), most)
        points = [(picture.x(x), picture.at(y)) for x, y in zip(xs[finite][part], ys[finite][part], strict=True)]
        picture.line(points, f"line {tone} {_DASHES[same.index(cell.label) % len(_DASHES)]}", cell.label)
        for x, y in points if len(points) == finite.sum() <= 12 else points[-1:]:
            picture.mark(x, y, shape, tone, cell.label)
    words = f"{title} against training {axis}, a line for each repeat."
    return picture.chart(f"{place}-{axis}", words, title)


def phases(group: Group) -> Chart | None:
    """Seconds of each cell until its first step ended, by phase."""
    cells = [cell for cell in group.cells if cell.start_up]
    if not cells:
        return None
    totals = [sum(cell.start_up.values()) for cell in cells]
    picture = Picture(38 * len(cells), Axis(0.0, 1.02 * max(totals)))
    picture.grid("seconds")
    for row, (cell, total) in enumerate(zip(cells, totals, strict=True)):
        picture.words(0, 38 * row + 14, cell.label, "name")
        picture.words(100, 38 * row + 14, wording.duration(total), "end name")
        start = 0.0
        for at, (name, seconds) in enumerate(cell.start_up.items(), start=1):
            hover = f"{cell.label}: {name} {wording.duration(seconds)}"
            picture.bar(picture.x(start), picture.x(start + seconds), 38 * row + 19, 12, f"bar phase-{at}", hover)
            start += seconds
    words = "Seconds of import, build and first step; the table below has the numbers. "
    words += "; ".join(f"{cell.label}: {wording.duration(total)}" for cell, total in zip(cells, totals, strict=True))
    keys = [LegendEntry("square", f"phase-{at}", name) for at, name in enumerate(cells[0].start_up, start=1)]
    caption = "Import, building the network and the first step. Data and the parity check are this tool's: they are not in it."
    return picture.chart(f"phases-{group.anchor}", words, caption, keys)


def scaling(scalings: Sequence[Scaling], forecast: bool = False) -> Chart | None:
    """The efficiency of every cell by its number of devices, both kinds of scaling: weak as lines, strong as dashed lines.

    All cells are of GPUs, or all of CPUs, whose devices share the threads that one device has: there nothing is lost at 1 / devices.
    With `forecast`, what more devices give at most, too: None where nothing bounds it.
    """
    shown = [scaling for scaling in scalings if not forecast or scaling.farthest]
    if not shown:
        return None
    counts = [point.devices for scaling in shown for point in scaling.points]
    counts += [scaling.farthest[0] for scaling in shown if forecast and scaling.farthest]
    last = max(counts)
    picture = Picture(240, Axis(1, max(last, 2), 0, 100, log=True), Axis(0, 1.1, 240, 0))
    ticks = [2**power for power in range(11) if 2**power <= last]
    picture.grid("devices", "efficiency", [(count, str(count)) for count in ticks])
    shared = shown[0].on_a_cpu
    nothing_lost = [(count, 1 / count if shared else 1.0) for count in [*ticks, max(last, 2)]]
    picture.line([(picture.x(count), picture.at(share)) for count, share in nothing_lost], "dotted muted")
    for at, scaling in enumerate(shown):
        shape, tone = page.sign_of(scaling.points[0].cells[0]) if _unlike(shown) else page.nth_sign(at)
        dash = "dashed" if scaling.kind == "strong" else ""
        points = [(picture.x(point.devices), picture.at(point.efficiency.value)) for point in scaling.points]
        picture.line(points, f"line {tone} {dash}", scaling.title)
        for point, (x, y) in zip(scaling.points, points, strict=True):
            efficiency = point.efficiency
            if efficiency.low is not None and efficiency.high is not None:
                picture.upright(x, picture.at(efficiency.low), picture.at(efficiency.high), f"line {tone}")
            hover = f"{scaling.title}, {scaling.kind}: {point.devices} devices, efficiency {wording.percent(efficiency.value)}"
            picture.mark(x, y, shape, tone, hover)
        if forecast:
            bounds = [(picture.x(devices), picture.at(share)) for devices, _, share in scaling.bounded]
            picture.line(bounds, f"dotted {tone}", f"{scaling.title}: at most, not measured")
    keys = [
        LegendEntry(
            *(page.sign_of(each.points[0].cells[0]) if _unlike(shown) else page.nth_sign(at)),
            f"{each.title}, {each.kind}",
        )
        for at, each in enumerate(shown)
    ]
    words = "Efficiency by devices: speed-up divided by the number of devices; the tables below have the numbers. "
    words += "; ".join(
        f"{each.title}, {each.kind}: {wording.percent(each.points[-1].efficiency.value)} on {each.points[-1].devices}"
        for each in shown
    )
    caption = "Lines: weak scaling; dashed: strong. The bars are 95 % intervals. Dotted: nothing is lost."
    if forecast:
        caption += " Other dotted lines: what more devices give at most, not measured."
    name = "scaling-at-most" if forecast else "scaling-cpu" if shared else "scaling"
    return picture.chart(name, words, caption, keys)


def _unlike(scalings: Sequence[Scaling]) -> bool:
    """True if a framework's own signs differ for all lines."""
    return len({(scaling.framework, scaling.kind) for scaling in scalings}) == len(scalings)


def ladder(workloads: Iterable[MeasuredWorkload], groups: Iterable[Group], end: str = "") -> tuple[Chart, ...]:
    """For each framework, device and precision: each version's time relative to the best one, a line for each workload.

    A filled point is a version that differs from the one before it in CUDA alone.
    """
    families: dict[tuple[str, str, str, str], dict[str, dict[tuple[str, str], list[MeasuredCell]]]] = {}
    for group in groups:
        for cell in (entry.cell for entry in group.ranked):
            family = families.setdefault((cell.framework, cell.mode, group.key.device, group.key.precision), {})
            rung = cell.version, str(cell.row.get("cuda_version") or "")
            family.setdefault(group.key.workload, {}).setdefault(rung, []).append(cell)
    looks = {
        workload.name: (page.nth_sign(at), workload.title.partition(",")[0]) for at, workload in enumerate(workloads)
    }
    drawn = (_ladder(f"ladder-{at}{end}", *family, looks) for at, family in enumerate(families.items(), start=1))
    return tuple(filter(None, drawn))


def _ladder(
    anchor: str,
    family: tuple[str, str, str, str],
    lines: Mapping[str, Mapping[tuple[str, str], Sequence[MeasuredCell]]],
    looks: Mapping[str, tuple[tuple[str, str], str]],
) -> Chart | None:
    framework, mode, device, precision = family
    rungs = sorted({rung for line in lines.values() for rung in line}, key=version_key)
    if len(rungs) < 2:
        return None
    shares: dict[str, list[tuple[int, Estimate, float]]] = {}
    for workload, line in lines.items():
        steps = [(place, Side(tuple(line[rung])).step) for place, rung in enumerate(rungs) if rung in line]
        measured = [(place, step) for place, step in steps if step is not None]
        best = min((step.value for _, step in measured), default=0.0)
        if len(measured) > 1:
            shares[workload] = [(place, step, best) for place, step in measured]
    if not shares:
        return None
    top = max(step.value / best for line in shares.values() for _, step, best in line)
    picture = Picture(130, Axis(-0.4, len(rungs) - 0.6), Axis(1.0, max(1.02, 1.03 * top), 125, 5))
    every = max(1, -(-len(rungs) // 6))
    picture.grid("", "× its best", [(place, rungs[place][0] or "–") for place in range(0, len(rungs), every)])
    picture.beside(picture.height + 32, "CUDA")
    for place in range(0, len(rungs), every):
        picture.words(picture.x(place), picture.height + 32, rungs[place][1] or "–", "mid tick")
    alone = [False, *(before[0] == after[0] for before, after in pairwise(rungs))]
    for workload, known in shares.items():
        (shape, tone), title = looks[workload]
        picture.line([(picture.x(place), picture.at(step.value / best)) for place, step, best in known], f"line {tone}")
        for place, step, best in known:
            if step.low is not None and step.high is not None:
                ends = picture.at(step.low / best), picture.at(step.high / best)
                picture.upright(picture.x(place), *ends, f"thin {tone}")
            version, cuda = rungs[place]
            hover = f"{title}, {wording.framework_name(framework)} {version}, CUDA {cuda or 'none'}: "
            hover += f"{wording.number(step.value / best)} × its best, {wording.duration(step.value)} a step"
            kind = tone if alone[place] else f"open {tone}"
            picture.mark(picture.x(place), picture.at(step.value / best), shape, kind, hover)
    name = wording.framework_name(framework) + (f" · {mode}" if mode != "default" else "")
    words = f"{name} on {device}, {precision}: step time of each version relative to the best version of each workload."
    keys = [LegendEntry(*looks[workload][0], looks[workload][1]) for workload in shares]
    return picture.chart(anchor, words, f"{name} · {wording.device_name(device)} · {precision}", keys)


# -- Over time ---------------------------------------------------------------------------------------------------------------------


def changes_over_time(
    data: Tables, again: Iterable[Sequence[MeasuredCell]], moved: Sequence[Contrast] = ()
) -> tuple[Chart, ...]:
    """For each workload, device and precision: each cell's step time relative to its first run's, run by run.

    `again` are the cells that were measured more than once. An upright marks a run before
    which a recorded fact changed: the driver, the image, the code. `moved`: the changes of step times, which are marked too.
    """
    dates = {run.run_id: str(run.manifest["created"])[5:16].replace("T", " ") for run in data.runs}
    groups: dict[tuple[str, str, str], list[Sequence[MeasuredCell]]] = {}
    for cells in again:
        key = cells[0].key
        if len({cell.run_id for cell in cells}) > 1:
            groups.setdefault((key.workload, key.device, key.precision), []).append(cells)
    return tuple(
        _changes(f"changes-{at}", " · ".join(place), lines, data.order, dates, moved)
        for at, (place, lines) in enumerate(groups.items(), start=1)
    )


def _changes(
    place: str,
    title: str,
    lines: Sequence[Sequence[MeasuredCell]],
    order: dict[str, int],
    dates: dict[str, str],
    moved: Sequence[Contrast],
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
    own = {cell.anchor for cells in lines for cell in cells}
    told = [row for row in moved if row.cell.anchor in own]
    for row in told:
        x = picture.x(at[row.after.cells[0].run_id] - 0.5)
        picture.upright(x, 0, picture.height, "dashed alarm" if row.slower else "dashed")
        picture.words(x, picture.height - 4, row.words, "mid alarm" if row.slower else "mid tick")
    for line, seconds in zip(shares, times, strict=True):
        shape, tone = page.sign_of(line[0][0])
        points = [(picture.x(at[cell.run_id]), picture.at(share)) for cell, share in line]
        picture.line(points, f"line {tone}", line[0][0].label)
        for (x, y), (cell, share), (_, took) in zip(points, line, seconds, strict=True):
            hover = f"{cell.label}: {wording.duration(took)} a step, {wording.number(share)} × the first run"
            picture.mark(x, y, shape, tone, hover)
    said = "; ".join(f"{number_}: {', '.join(changes)}" for number_, changes in enumerate(events.values(), start=1))
    words = (
        f"{title}: step time of each cell relative to its first run, over {len(runs)} runs. Events: {said or 'none'}."
        + "".join(f" {row.cell.label}: {row.words}." for row in told)
    )
    keys = [LegendEntry(*page.sign_of(cells[0]), cells[0].name) for cells in lines]
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
