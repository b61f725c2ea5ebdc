"""Groups of comparable cells. Each group is ranked: the fastest first, with the ratio of each other cell to it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Ranked, unsettled
from reports.specifications import specification
from reports.wording import listing
from runner.results import steadiness
from runner.results.cells import Key
from runner.results.rank.blocks import Blocks
from runner.results.rank.ranking import MARGIN, Contender, Field, Pair, among_tables, in_blocks, levelled
from runner.results.statistics import Estimate


def workloads(cells: Sequence[MeasuredCell], *, compared: bool = True) -> tuple[MeasuredWorkload, ...]:
    """The cells by workload, in groups of those that may be compared. Not `compared`: nobody asks how they stand beside one another, which
    takes time that grows as the square of their number, so none is ranked."""
    grouped: dict[str, dict[Key, list[MeasuredCell]]] = {}
    for cell in cells:
        grouped.setdefault(cell.key.workload, {}).setdefault(cell.key, []).append(cell)
    comparable = [
        Comparable(f"group-{_digest(repr(key))}", key, groups[key])
        for name in sorted(grouped)
        for groups in [_with_sources(grouped[name])]
        for key in sorted(groups, key=_in_order)
    ]
    found = groups_of(comparable, blocks_of(cells)) if compared else [_by_step_time(one) for one in comparable]
    return tuple(
        _described(_anchor(name), name, tuple(group for group in found if group.key.workload == name))
        for name in sorted(grouped)
    )


class Comparable(NamedTuple):
    """Cells that may be compared: the anchor of their group, what they have in common, and the cells."""

    anchor: str
    key: Key
    cells: Sequence[MeasuredCell]


def _in_order(key: Key) -> tuple[object, ...]:
    return key.device_kind, key.device_model, key.devices, key.scaling, key.precision, key.preset


def _anchor(name: str) -> str:
    """The page's anchor of a workload. It follows from the name, so a link stays right when other workloads are added."""
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


def field_of(cells: Sequence[MeasuredCell], beside: Iterable[MeasuredCell]) -> Field:
    """Some cells of one run for a comparison with one another, however noisy they are: their intervals have room for it.

    `beside`: further cells of the run, which show with them what moved all of them at the time.
    """
    blocks = Blocks(
        {cell.anchor: logs for cell in (*cells, *beside) if not cell.unsound and (logs := in_blocks([cell]))}
    )
    named: dict[Hashable, Contender] = {cell.anchor: _contender(levelled(cell, blocks, cell.anchor)) for cell in cells}
    return Field(named, blocks, cells[0].key.device_kind)


def groups_of(comparable: Sequence[Comparable], blocks: Blocks) -> list[Group]:
    """The groups of one report. Each has its cells in the order of their step times, which are those within blocks."""
    fits: list[dict[Hashable, MeasuredCell]] = [
        {cell.anchor: levelled(cell, blocks, cell.anchor) for cell in one.cells if not cell.unranked}
        for one in comparable
    ]
    fields = among_tables(
        [
            Field({name: _contender(cell) for name, cell in fit.items()}, blocks, one.key.device_kind)
            for one, fit in zip(comparable, fits, strict=True)
        ]
    )
    return [_group(*of_one) for of_one in zip(comparable, fits, fields, strict=True)]


def _group(one: Comparable, fit: Mapping[Hashable, MeasuredCell], field: Field) -> Group:
    others = tuple(cell for cell in one.cells if cell.unranked)
    return Group(one.anchor, one.key, tuple(_ranked(name, fit, field) for name in field.order), others, field)


def _by_step_time(one: Comparable) -> Group:
    """The group without a rank, its cells in the order of their step times; those that may not be ranked come last."""
    ordered = sorted(one.cells, key=lambda cell: math.inf if cell.unranked or cell.step is None else cell.step.value)
    return Group(one.anchor, one.key, (), tuple(ordered), Field({}, Blocks({}), one.key.device_kind))


def _contender(cell: MeasuredCell) -> Contender:
    if cell.step is None:
        raise ValueError("a ranked cell has a step time")
    of_sessions: dict[Hashable, list[float]] = {}
    for repeat, log in zip(cell.measured, cell.log_levels.tolist(), strict=True):
        of_sessions.setdefault((repeat.row.get("run_id"), repeat.reused), []).append(log)
    logs = [log for of_one in of_sessions.values() for log in of_one]
    means = {session: sum(of_one) / len(of_one) for session, of_one in of_sessions.items()}
    return Contender(
        math.log(cell.step.value),
        logs,
        cell.step.inside or 0.0,
        frozenset(means),
        means,
        max(cell.scatter, cell.seen_scatter),
    )


def _ranked(name: Hashable, fit: Mapping[Hashable, MeasuredCell], field: Field) -> Ranked:
    """A cell beside the first. With one repeat, the interval of an unsteady cell spans its levels."""
    cell, first = fit[name], fit[field.first]
    if cell is first:
        return Ranked(cell, Estimate(1.0, 1.0, 1.0, 0, len(cell.measured), "itself"))
    pair = pair_of(field, first, cell)
    open_by = left_open([first], [cell], pair.ratio.value)
    ranked = Ranked(cell, pair.ratio, pair.p, pair.verdict, pair.once, open_by, assumed=pair.assumed)
    if name not in field.out or pair.verdict == "slower":
        return ranked
    # Beside the first it is open, and another cell shows that it is slower.
    faster = fit[field.out[name]]
    told = pair_of(field, faster, cell)
    open_by = left_open([faster], [cell], told.ratio.value)
    return replace(ranked, p=told.p, figures="slower", open_by=open_by, beside=faster, told_by=told.ratio)


def pair_of(field: Field, before: MeasuredCell, after: MeasuredCell, margin: float = MARGIN) -> Pair:
    """The second of two cells of a group beside the first. The interval of one repeat spans the levels of an unsteady cell."""
    pair = field.between(after.anchor, before.anchor, margin)
    if not pair.once or not (before.shifts or after.shifts):
        return pair
    return replace(pair, ratio=steadiness.spanning(pair.ratio, after.levels, before.levels))


def left_open(before: Sequence[MeasuredCell], after: Sequence[MeasuredCell], ratio: float) -> str:
    """Why the order of two sides stays open whatever their figures say: cells got few of their CPUs. Empty where nothing leaves it open."""
    fast, slow = (before, after) if ratio >= 1 else (after, before)
    pairs = ((one, other) for one in fast for other in slow)
    few = (cell for pair in pairs for cell in unsettled(*pair, max(ratio, 1 / ratio)))
    names = listing(dict.fromkeys(cell.label for cell in few))
    return f"{names} got less than half of the CPUs; more CPUs may change the order" if names else ""


def sessions_of(cells: Iterable[MeasuredCell]) -> set[tuple[object, bool]]:
    """The sessions that measured the cells: the runs, each with whether it was before the run was resumed."""
    return {(cell.run_id, repeat.reused) for cell in cells for repeat in cell.measured}


def _described(anchor: str, name: str, groups: tuple[Group, ...]) -> MeasuredWorkload:
    """The workload with its specification's facts, if this checkout has one."""
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
        unit=str(metric.get("unit", "")),
        task=str(spec.get("task", "")),
        learns=not spec or bool(metric),
        groups=groups,
    )
