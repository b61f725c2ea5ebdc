"""Groups of comparable cells. Each group is ranked: the fastest first, with the ratio of each other cell to it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Ranked
from reports.specifications import specification
from runner.results import statistics, steadiness
from runner.results.blocks import Blocks, InBlock
from runner.results.cells import Key
from runner.results.statistics import Difference, Estimate
from runner.results.student import questions

OTHER_RUNS = "no run measured both"
OTHER_TIME = "measured at another time of the run"


def workloads(cells: Sequence[MeasuredCell]) -> tuple[MeasuredWorkload, ...]:
    grouped: dict[str, dict[Key, list[MeasuredCell]]] = {}
    for cell in cells:
        grouped.setdefault(cell.key.workload, {}).setdefault(cell.key, []).append(cell)
    blocks = blocks_of(cells)
    workloads = []
    for name in sorted(grouped):
        groups = _with_sources(grouped[name])
        ordered = sorted(
            groups,
            key=lambda key: (key.device_kind, key.device_model, key.devices, key.scaling, key.precision, key.preset),
        )
        done = tuple(group_of(f"group-{_digest(repr(key))}", key, groups[key], blocks) for key in ordered)
        workloads.append(_described(_anchor(name), name, done))
    return tuple(workloads)


def _anchor(name: str) -> str:
    """Where the page shows a workload. It follows from the name, so a link stays right when other workloads are added."""
    return f"workload-{name if re.fullmatch('[a-z][a-z0-9_-]{0,60}', name) else _digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def _with_sources(groups: Mapping[Key, list[MeasuredCell]]) -> dict[Key, list[MeasuredCell]]:
    """A cell that ended before it recorded its data goes to the first group that is otherwise its own."""
    merged = {key: list(cells) for key, cells in groups.items() if key.data_source}
    for key, cells in groups.items():
        if not key.data_source:
            home = next((other for other in merged if replace(other, data_source="") == key), key)
            merged.setdefault(home, []).extend(cells)
    return merged


def blocks_of(cells: Iterable[MeasuredCell]) -> Blocks:
    """The ranked cells, by their anchors, within the blocks of their runs."""
    return Blocks({cell.anchor: logs for cell in cells if not cell.unranked and (logs := in_blocks([cell]))})


def in_blocks(cells: Iterable[MeasuredCell]) -> Sequence[InBlock]:
    """Each repeat of the cells in its block. Empty for one repeat, which shows no noise.

    A block is the repeats of one number in one run on one model of device. What was measured before the run was resumed is in
    another block, and another session, than the rest: time has passed between them.
    """
    repeats = [
        InBlock((session, repeat.number), repeat.log_median, session, repeat.began)
        for cell in cells
        for repeat in cell.repeats
        if repeat.log_median is not None
        and (session := (repeat.row.get("run_id"), cell.key.device_model, repeat.reused))
    ]
    return repeats if len(repeats) > 1 else ()


def group_of(anchor: str, key: Key, cells: Sequence[MeasuredCell], blocks: Blocks) -> Group:
    fit = _in_order([cell for cell in cells if not cell.unranked], blocks)
    asked = [_asked(cell, fit[0], len(fit), blocks) for cell in fit[1:]]
    best = [Ranked(cell, Estimate(1.0, 1.0, 1.0, 0, len(cell.measured), "itself")) for cell in fit[:1]]
    others = [_ranked(one, fit[0], among) for one, among in zip(asked, _among(asked), strict=True)]
    return Group(anchor, key, (*best, *others), tuple(cell for cell in cells if cell.unranked))


def _in_order(cells: Sequence[MeasuredCell], blocks: Blocks) -> list[MeasuredCell]:
    """The cells, the fastest first: the one that none is faster than.

    Beside a cell of one repeat all are compared by their medians. Where the machine drifts, these may order two others in another way
    than their blocks do, which decide between these two. So no cell is the measure for all.
    """
    best = max(range(len(cells)), key=lambda at: len(cells[at].measured), default=0)
    order: list[int] = []
    # Medians and blocks together may go round in a circle.
    for _ in cells:
        levels = [_level(cell, cells[best], blocks) for cell in cells]
        order = sorted(range(len(cells)), key=levels.__getitem__)
        if levels[order[0]] >= 0:
            break
        best = order[0]
    return [cells[at] for at in sorted(order, key=lambda at: at != best)]


def _level(cell: MeasuredCell, other: MeasuredCell, blocks: Blocks) -> float:
    """The log level of a cell less that of another one: within blocks, and where no blocks join them that of their medians."""
    if within := blocks.difference(cell.anchor, other.anchor):
        return within.value
    return math.log(cell.step.value / other.step.value) if cell.step and other.step else 0.0


def questions_among(cells: int, within: Difference | None) -> float:
    """As how many questions the pairs of so many cells count; together they may err in 5 %.

    Each cell is compared with the one that was seen to be fastest, and any might have been: so all pairs are asked. Within blocks
    the pairs share one variance (Tukey). Otherwise each counts by itself (Bonferroni).
    """
    if within is None:
        return max(1, cells * (cells - 1) // 2)
    return questions(cells, within.freedom, statistics.ALPHA)


@dataclass(frozen=True)
class _Asked:
    """A cell beside the fastest one: their ratio, whose interval counts all pairs of the group."""

    cell: MeasuredCell
    within: Difference | None
    ratio: Estimate
    # The chance of so large a ratio if both were equal. None where the data give none.
    p: float | None


def _asked(cell: MeasuredCell, best: MeasuredCell, cells: int, blocks: Blocks) -> _Asked:
    """The step time of one of so many cells divided by that of the best.

    Where no block joins the two, because other runs measured them, a run before and after it was resumed, or at another time, the
    interval also holds what two sessions may differ by.
    """
    above, below = ([repeat.steady_step_seconds for repeat in measured.repeats] for measured in (cell, best))
    within = blocks.difference(cell.anchor, best.anchor)
    level = 1 - statistics.ALPHA / questions_among(cells, within)
    ratio = statistics.ratio_estimate(above, below, level, within=within)
    if ratio is None or cell.step is None or best.step is None:
        raise ValueError("a ranked cell has a step time")
    if not within and not _blocks_in(cell) & _blocks_in(best):
        deviation = statistics.of_kind(statistics.SESSION_DEVIATION, cell.key.device_kind)
        ratio = statistics.beside(ratio, 0.0, math.sqrt(2) * deviation, level)
        why = OTHER_TIME if sessions_of([cell]) == sessions_of([best]) else OTHER_RUNS
        ratio = replace(ratio, note="; ".join(filter(None, (ratio.note, why))))
    return _Asked(cell, within, ratio, statistics.p_value(ratio, level))


def _among(asked: Sequence[_Asked]) -> list[int]:
    """Among how many cells each is judged: those that are not yet slower than the fastest (Newman 1939, Keuls 1952).

    The slowest of a group is told first. Of those that are truly equal to the fastest, the first that is wrongly called slower was
    judged while all of them still counted.
    """
    among = [len(asked) + 1] * len(asked)
    left = set(range(len(asked)))
    while True:
        count = len(left) + 1
        for at in left:
            among[at] = count
        slower = {at for at in left if statistics.told_apart(_adjusted(asked[at], count)) and asked[at].ratio.value > 1}
        if not slower:
            return among
        left -= slower


def _adjusted(asked: _Asked, among: int) -> float | None:
    return None if asked.p is None else min(1.0, asked.p * questions_among(among, asked.within))


def _ranked(asked: _Asked, best: MeasuredCell, among: int) -> Ranked:
    """The ratio with the interval that so many cells leave. With one repeat, that of an unsteady cell spans its levels."""
    cell, ratio = asked.cell, asked.ratio
    if ratio.error is not None and ratio.freedom is not None:
        level = 1 - statistics.ALPHA / questions_among(among, asked.within)
        ratio = statistics.with_error(ratio, ratio.error, ratio.freedom, level)
    if cell.shifts or best.shifts:
        ratio = steadiness.spanning(ratio, levels([cell]), levels([best]))
    return Ranked(cell, ratio, _adjusted(asked, among))


def _blocks_in(cell: MeasuredCell) -> set[tuple[object, bool, int]]:
    """The blocks that hold a repeat of the cell, also where it has only one."""
    measured = (repeat for repeat in cell.repeats if repeat.log_median is not None)
    return {(cell.run_id, repeat.reused, repeat.number) for repeat in measured}


def sessions_of(cells: Iterable[MeasuredCell]) -> set[tuple[object, bool]]:
    """The sessions that measured the cells: the runs, each with whether it was before the run was resumed."""
    return {(cell.run_id, repeat.reused) for cell in cells for repeat in cell.repeats if repeat.log_median is not None}


def levels(cells: Iterable[MeasuredCell]) -> list[float]:
    """Seconds a step at every level of the cells: each cell's median, and both sides of each shift."""
    levels_ = []
    for cell in cells:
        levels_ += [cell.step.value] if cell.step else []
        levels_ += [level for _, shift in cell.shifts for level in (shift.before, shift.after)]
    return levels_


def _described(anchor: str, name: str, groups: tuple[Group, ...]) -> MeasuredWorkload:
    """The workload with what its specification says, where this checkout has one."""
    spec = specification(name)
    metric = spec.get("metric") or {}
    band = metric.get("band")
    return MeasuredWorkload(
        anchor=anchor,
        name=name,
        title=spec.get("title", name),
        items=spec.get("items", "items"),
        metric=metric.get("name", ""),
        band=(float(band[0]), float(band[1])) if band else None,
        band_data=str(metric.get("band_data", "")),
        band_needs=str(metric.get("band_needs") or ""),
        chance=spec.get("chance"),
        task=str(spec.get("task", "")),
        learns=not spec or bool(metric),
        groups=groups,
    )
