"""Cells by what may be compared, each group ranked: the fastest first, with how much longer the others take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from reports.data.model import Group, Key, MeasuredCell, MeasuredWorkload, Ranked
from reports.data.specifications import specification
from runner.results import statistics
from runner.results.statistics import Estimate


def workloads(cells: Sequence[MeasuredCell]) -> tuple[MeasuredWorkload, ...]:
    grouped: dict[str, dict[Key, list[MeasuredCell]]] = {}
    for cell in cells:
        grouped.setdefault(cell.key.workload, {}).setdefault(cell.key, []).append(cell)
    workloads = []
    for number, name in enumerate(sorted(grouped), start=1):
        groups = _with_sources(grouped[name])
        ordered = sorted(
            groups,
            key=lambda key: (key.device_kind, key.device_model, key.devices, key.scaling, key.precision, key.preset),
        )
        done = tuple(group_of(f"group-{number}-{at}", key, groups[key]) for at, key in enumerate(ordered, start=1))
        workloads.append(_described(f"workload-{number}", name, done))
    return tuple(workloads)


def _with_sources(groups: Mapping[Key, list[MeasuredCell]]) -> dict[Key, list[MeasuredCell]]:
    """Cells that ended before they told their data stand with the first group that is otherwise theirs."""
    merged = {key: list(cells) for key, cells in groups.items() if key.data_source}
    for key, cells in groups.items():
        if not key.data_source:
            home = next((other for other in merged if replace(other, data_source="") == key), key)
            merged.setdefault(home, []).extend(cells)
    return merged


def group_of(anchor: str, key: Key, cells: Sequence[MeasuredCell]) -> Group:
    fit = sorted(
        (cell for cell in cells if not cell.unranked), key=lambda cell: cell.step.value if cell.step else math.inf
    )
    # Each is set against the fastest: k cells are k - 1 questions, which together shall err in 5 % (Bonferroni).
    level = 1 - (1 - statistics.LEVEL) / max(1, len(fit) - 1)
    ranked = tuple(Ranked(cell, _ratio(cell, fit[0], level)) for cell in fit)
    return Group(anchor, key, ranked, tuple(cell for cell in cells if cell.unranked))


def _ratio(cell: MeasuredCell, best: MeasuredCell, level: float) -> Estimate:
    """How much longer the cell's step takes than the best one's; an unsteady one counts over its whole interval."""
    if cell is best:
        return Estimate(1.0, 1.0, 1.0, 0, len(cell.repeats), "itself")
    above, below = ([repeat.steady_step_seconds for repeat in measured.repeats] for measured in (cell, best))
    ratio = statistics.ratio_estimate(above, below, level=level)
    if ratio is None or cell.step is None or best.step is None:
        raise ValueError("a ranked cell has a step time")
    if not (cell.shifts or best.shifts):
        return ratio
    return statistics.spanning(ratio, levels([cell]), levels([best]))


def levels(cells: Iterable[MeasuredCell]) -> list[float]:
    """Seconds a step of every level that the cells were at: each one's median, and both sides of each shift."""
    levels_ = []
    for cell in cells:
        levels_ += [cell.step.value] if cell.step else []
        levels_ += [level for _, shift in cell.shifts for level in (shift.before, shift.after)]
    return levels_


def _described(anchor: str, name: str, groups: tuple[Group, ...]) -> MeasuredWorkload:
    """The workload with the words of its specification in bench, where this release knows it."""
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
