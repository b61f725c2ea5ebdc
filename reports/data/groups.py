"""Groups of comparable cells. Each group is ranked: the fastest first, with the ratio of each other cell to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Ranked
from reports.specifications import specification
from runner.results import statistics
from runner.results.cells import Key
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
    """A cell that ended before it recorded its data goes to the first group that is otherwise its own."""
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
    # Each cell is compared with the fastest: k cells are k - 1 questions. Together they may err in 5 % (Bonferroni).
    level = 1 - (1 - statistics.LEVEL) / max(1, len(fit) - 1)
    ranked = tuple(Ranked(cell, _ratio(cell, fit[0], level)) for cell in fit)
    return Group(anchor, key, ranked, tuple(cell for cell in cells if cell.unranked))


def _ratio(cell: MeasuredCell, best: MeasuredCell, level: float) -> Estimate:
    """The cell's step time divided by that of the best cell. The ratio of an unsteady cell spans all its levels."""
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
