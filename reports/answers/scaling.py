"""Cells that differ only in the number of devices: speed-up, efficiency, the metric, and a bound for more devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reports.answers.scale_model import Bound, Model, ModelError, model
from reports.data.groups import levels
from reports.data.model import MeasuredCell, MeasuredWorkload, Tables
from runner.results import statistics, steadiness
from runner.results.cells import Key
from runner.results.statistics import Estimate

# Quality must survive scaling: a metric may lie this far below that of one device. One study shows why it is checked: a network's
# mean AUC fell from 0.80 on one GPU to 0.55 on four.
BAND = 0.02
# Metrics are compared after equal training. More than this ratio of items is not equal.
EQUAL_ITEMS = 1.1
# The text bounds the rate of this many devices, and the plot ends there: the study of ChainerMN has as many. It is no prediction.
FARTHEST = 128


@dataclass(frozen=True)
class Point:
    """A number of devices: their items a second together, those divided by one device's, and the metric."""

    devices: int
    cells: tuple[MeasuredCell, ...]
    rate: Estimate
    speed_up: Estimate
    metric: float | None
    items: float | None  # that the network was trained on before that
    flag: str  # what is wrong with the metric, or why it cannot be judged; empty where it holds

    @property
    def efficiency(self) -> Estimate:
        """Speed-up divided by the number of devices."""
        return _times(self.speed_up, 1 / self.devices)

    @property
    def threads(self) -> str:
        """The CPU threads that the cell gave its devices, and how they have them; empty where it did not say."""
        settings = self.cells[0].environment.get("settings")
        one, together = (
            settings.get(name) if isinstance(settings, dict) else None for name in ("threads_asked", "threads_of_all")
        )
        if one is None or (together is None and self.devices > 1):
            return ""
        return str(one) if self.devices == 1 else f"{one} that all share" if together == one else f"{one} each"


@dataclass(frozen=True)
class Scaling:
    """One cell over numbers of devices in one kind of scaling. The first point is one device."""

    anchor: str
    title: str
    framework: str
    workload: MeasuredWorkload
    key: Key  # of one device
    kind: str  # weak | strong
    points: tuple[Point, ...]
    model: Model | None
    refused: str  # why there is no model

    @property
    def on_a_cpu(self) -> bool:
        return self.key.device_kind == "cpu"

    def most(self, bound: Bound) -> float:
        """Items a second at a bound of the step time: no more are expected on its devices."""
        items = self.points[0].cells[0].items_per_step or 0.0
        return items * (bound.devices if self.kind == "weak" else 1) / bound.seconds

    @property
    def farthest(self) -> tuple[int, float, float] | None:
        """Of the most devices that are bounded beyond the measured ones: their number, and at most how many items a second and
        what efficiency; None where there is no bound."""
        if self.model is None or not self.model.bounds or self.model.bounds[-1].devices <= self.points[-1].devices:
            return None
        bound, alone = self.model.bounds[-1], self.points[0].rate
        most = self.most(bound)
        return bound.devices, most, most / bound.devices / (alone.low or alone.value)


def scalings(tables: Tables) -> tuple[Scaling, ...]:
    """Each cell that was measured on one device and on several; weak scaling before strong."""
    shown: list[Scaling] = []
    for workload in tables.ranked:
        families: dict[tuple[object, ...], list[MeasuredCell]] = {}
        for cell in (cell for group in workload.groups for cell in group.cells if cell.comparable):
            alike = replace(cell.key, devices=1, scaling="")
            families.setdefault((alike, cell.image, cell.framework, cell.mode, cell.engine), []).append(cell)
        for cells in families.values():
            for kind in ("weak", "strong"):
                several = [cell for cell in cells if cell.key.devices > 1 and (cell.key.scaling or "weak") == kind]
                single = [cell for cell in cells if cell.key.devices == 1]
                if single and several:
                    shown.append(_scaling(f"scaling-{len(shown) + 1}", workload, kind, single, several))
    return tuple(shown)


def _scaling(
    anchor: str, workload: MeasuredWorkload, kind: str, single: list[MeasuredCell], several: list[MeasuredCell]
) -> Scaling:
    by_count: dict[int, list[MeasuredCell]] = {1: single}
    for cell in sorted(several, key=lambda cell: cell.key.devices):
        by_count.setdefault(cell.key.devices, []).append(cell)
    points = tuple(_point(count, tuple(cells), tuple(single), workload) for count, cells in by_count.items())
    first = single[0]
    fitted, refused = None, ""
    try:
        if first.key.device_kind == "cpu":
            raise ModelError("the devices of a CPU share it, so more of them would add nothing")
        largest, most = max(by_count), min(FARTHEST, first.key.batch if kind == "strong" else FARTHEST)
        further = [largest, *(2**power for power in range(8) if largest < 2**power <= most)]
        windows = {
            count: [repeat.steady_step_seconds for cell in cells for repeat in cell.repeats]
            for count, cells in by_count.items()
        }
        fitted = model(windows, kind == "strong", further)
    except ModelError as error:
        refused = str(error)
    title = f"{first.name}, {workload.name}, {first.key.precision} on {first.key.device_model}"
    return Scaling(anchor, title, first.framework, workload, first.key, kind, points, fitted, refused)


def _point(
    count: int, cells: tuple[MeasuredCell, ...], single: tuple[MeasuredCell, ...], workload: MeasuredWorkload
) -> Point:
    windows, alone = _windows(cells), _windows(single)
    step = statistics.step_estimate(windows)
    ratio = statistics.ratio_estimate(alone, windows)
    items, items_alone = cells[0].items_per_step, single[0].items_per_step
    if step is None or ratio is None or not items or not items_alone:
        raise ValueError("a ranked cell has a step time and items")
    step = steadiness.widened(step, [shift for cell in cells for _, shift in cell.shifts])
    if any(cell.shifts for cell in (*single, *cells)):
        ratio = steadiness.spanning(ratio, levels(single), levels(cells))
    low, high = (None if end is None else items / end for end in (step.high, step.low))
    rate = replace(step, value=items / step.value, low=low, high=high)
    speed_up = _times(ratio, items / items_alone)
    if count == 1:
        speed_up = Estimate(1.0, 1.0, 1.0, ratio.windows, ratio.repeats, "itself")
    metric, trained = _learned(cells)
    return Point(count, cells, rate, speed_up, metric, trained, _flag(cells, single, workload) if count > 1 else "")


def _windows(cells: Iterable[MeasuredCell]) -> list[statistics.Array]:
    return [repeat.steady_step_seconds for cell in cells for repeat in cell.repeats]


def _learned(cells: tuple[MeasuredCell, ...]) -> tuple[float | None, float | None]:
    """The lowest of some cells' last test metrics, and the items that its cell was trained on before."""
    scored = [(cell.score.value, cell.score.steps * (cell.items_per_step or 0)) for cell in cells if cell.score]
    return min(scored) if scored else (None, None)


def _flag(cells: tuple[MeasuredCell, ...], single: tuple[MeasuredCell, ...], workload: MeasuredWorkload) -> str:
    metric, items = _learned(cells)
    bottom = min((cell.score.low for cell in single if cell.score), default=None)
    _, alone = _learned(single)
    if not workload.learns:
        return ""
    if metric is None or bottom is None or not items or not alone:
        return "no metric to judge by"
    if max(items, alone) > EQUAL_ITEMS * min(items, alone):
        return f"not comparable: trained on {items / alone:.2g} × as many {workload.items} as one device"
    if metric < bottom - BAND:
        return f"below one device's band: it learned less than {bottom - BAND:.3g}, so its speed means nothing"
    return ""


def _times(estimate: Estimate, factor: float) -> Estimate:
    low, high = (None if end is None else end * factor for end in (estimate.low, estimate.high))
    return replace(estimate, value=estimate.value * factor, low=low, high=high)
