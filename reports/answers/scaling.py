"""Cells that differ only in the number of devices: speed-up, efficiency, the metric, and a bound for more devices.

The limit of more devices is a model of the step time by the number of devices, fitted to measured times.

    t(n) = compute(n) + 2 log2(n) latency + 2 (n - 1) / n transfer

compute(n) is a constant in weak scaling and 1 / n of one device's in strong. The rest is an all-reduce of the gradients by
reduce-scatter and all-gather (Rabenseifner's; Thakur, Rabenseifner and Gropp, Int. J. High Performance Computing Applications 19,
2005, 4.4): no algorithm sends less, and its latency grows with the logarithm, as that of NCCL's double binary trees does
(Jeaugey, NCCL 2.4, 2019), which it takes among many devices. A ring sends as much, but its latency grows with n - 1: a network
of rings scales worse than this says. Waiting for the slowest of n devices grows about as the logarithm too and is part of the
latency here. If gradients travel while others are still computed, latency and transfer are the parts that were not hidden.
The three terms are fitted without a negative one, to relative errors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reports.data.model import MeasuredCell, MeasuredWorkload, Tables
from reports.wording import listing
from runner.results import statistics, steadiness
from runner.results.cells import Key, step_of

# Quality must survive scaling: a metric may lie this far below that of one device. One study shows why it is checked: a network's
# mean AUC fell from 0.80 on one GPU to 0.55 on four.
BAND = 0.02
# Metrics are compared after equal training. More than this ratio of items is not equal.
EQUAL_ITEMS = 1.1
# The text bounds the rate of this many devices, and the plot ends there: the study of ChainerMN has as many. It is no prediction.
FARTHEST = 128
FEWEST_COUNTS = 3
DRAWS = 2000
# The share of drawn models that are faster than a bound. So the truth is at or above the bound in 95 of 100 simulated runs or more,
# on machines of the model's kind and of others (tests/unit/reports/answers/test_scaling.py). With 0.025 it was in 88 of 100 on one.
TAIL = 0.005
TERMS = ("compute", "latency", "transfer")


class ModelError(Exception):
    """The measured points are not enough for a model; the message says why."""


@dataclass(frozen=True)
class Bound:
    """The least that a step takes on a number of devices, in seconds."""

    devices: int
    seconds: float


@dataclass(frozen=True)
class Model:
    """The fitted terms in seconds, the deviation of the measured points from it, and bounds beyond them.

    `residual` is the relative standard deviation of the points from the model; None where the model has as many terms as points.
    A bound is no prediction. It assumes that more devices are joined as well as the measured ones are. Another switch, a network
    of rings, congestion, or communication that no longer hides behind computing make a step longer than that.
    """

    terms: Mapping[str, float]
    residual: float | None
    counts: tuple[int, ...]
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class Point:
    """A number of devices: their items a second together, those divided by one device's, and the metric."""

    devices: int
    cells: tuple[MeasuredCell, ...]
    rate: statistics.Estimate
    speed_up: statistics.Estimate
    metric: float | None
    items: float | None  # that the network was trained on before that
    flag: str  # what is wrong with the metric, or why it cannot be judged; empty where it holds

    @property
    def efficiency(self) -> statistics.Estimate:
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

    @property
    def bounded(self) -> tuple[tuple[int, float, float], ...]:
        """Of each number of devices that is bounded: the number, and at most how many items a second and what efficiency."""
        items, alone = self.points[0].cells[0].items_per_step or 0.0, self.points[0].rate
        bounds = self.model.bounds if self.model else ()
        most = [items * (bound.devices if self.kind == "weak" else 1) / bound.seconds for bound in bounds]
        return tuple(
            (bound.devices, rate, rate / bound.devices / (alone.low or alone.value))
            for bound, rate in zip(bounds, most, strict=True)
        )

    @property
    def farthest(self) -> tuple[int, float, float] | None:
        """The last of them; None where none lies beyond the measured numbers of devices."""
        return self.bounded[-1] if self.bounded and self.bounded[-1][0] > self.points[-1].devices else None


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
        windows = {count: _windows(cells) for count, cells in by_count.items()}
        fitted = model(windows, kind == "strong", further)
    except ModelError as error:
        refused = str(error)
    title = f"{first.name}, {workload.name}, {first.key.precision} on {first.key.device_model}"
    return Scaling(anchor, title, first.framework, workload, first.key, kind, points, fitted, refused)


def _point(
    count: int, cells: tuple[MeasuredCell, ...], single: tuple[MeasuredCell, ...], workload: MeasuredWorkload
) -> Point:
    windows, alone = _windows(cells), _windows(single)
    step = step_of([repeat for cell in cells for repeat in cell.measured])
    ratio = statistics.ratio_estimate(alone, windows)
    items, items_alone = cells[0].items_per_step, single[0].items_per_step
    if step is None or ratio is None or not items or not items_alone:
        raise ValueError("a ranked cell has a step time and items")
    if any(cell.shifts for cell in (*single, *cells)):
        ratio = steadiness.spanning(
            ratio, *([level for cell in side for level in cell.levels] for side in (single, cells))
        )
    low, high = (None if end is None else items / end for end in (step.high, step.low))
    rate = replace(step, value=items / step.value, low=low, high=high)
    speed_up = _times(ratio, items / items_alone)
    if count == 1:
        speed_up = statistics.Estimate(1.0, 1.0, 1.0, ratio.windows, ratio.repeats, "itself")
    metric, trained = _learned(cells)
    return Point(count, cells, rate, speed_up, metric, trained, _flag(cells, single, workload) if count > 1 else "")


def _windows(cells: Iterable[MeasuredCell]) -> list[statistics.Timings]:
    return [repeat.steady for cell in cells for repeat in cell.measured]


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


def _times(estimate: statistics.Estimate, factor: float) -> statistics.Estimate:
    low, high = (None if end is None else end * factor for end in (estimate.low, estimate.high))
    return replace(estimate, value=estimate.value * factor, low=low, high=high)


# -- The limit of more devices ------------------------------------------------------------------------------------------------------


def features(counts: Sequence[int] | statistics.Array, strong: bool) -> statistics.Array:
    """(counts, terms): the factor of each term."""
    n = np.asarray(counts, dtype=np.float64)
    return np.stack([1 / n if strong else np.ones_like(n), 2 * np.log2(n), 2 * (n - 1) / n], axis=1)


def fit(counts: Sequence[int] | statistics.Array, seconds: statistics.Array, strong: bool) -> statistics.Array:
    """The terms of each of several sets of step times, (sets, counts) -> (sets, terms): least squares of relative errors, none negative.

    With three terms the best of all fits that leave some out is the exact answer (Lawson and Hanson, Solving Least Squares
    Problems, 1974, ch. 23: the solution is the plain one on its positive terms).
    """
    weighted = features(counts, strong)[None] / seconds[:, :, None]
    best = np.full((len(seconds), len(TERMS)), np.nan)
    least = np.full(len(seconds), np.inf)
    for size in range(1, len(TERMS) + 1):
        for chosen in itertools.combinations(range(len(TERMS)), size):
            part = weighted[:, :, chosen]
            solution = np.zeros((len(seconds), len(TERMS)))
            solution[:, chosen] = np.linalg.pinv(part).sum(axis=2)
            errors = ((np.einsum("snt,st->sn", weighted, solution) - 1) ** 2).sum(axis=1)
            better = (solution >= 0).all(axis=1) & (errors < least * (1 - 1e-9))
            best[better], least[better] = solution[better], errors[better]
    return best


def model(points: Mapping[int, Sequence[statistics.Windowed]], strong: bool, further: Sequence[int]) -> Model:
    """The model of measured step times: device count -> the windows of each repeat. Bounds the `further` counts. Raises ModelError."""
    counts = tuple(sorted(points))
    if len(counts) < FEWEST_COUNTS:
        measured = ", ".join(map(str, counts))
        raise ModelError(
            f"{len(counts)} device counts ({measured}): a model of three terms needs {FEWEST_COUNTS} or more, such as --devices 1,2,4"
        )
    steps = [statistics.step_estimate(points[count]) for count in counts]
    once = [str(count) for count, step in zip(counts, steps, strict=True) if step is None or step.error is None]
    if once:
        raise ModelError(
            f"one repeat on {listing(once)} device{'s' * (once != ['1'])} does not show how much another run would differ; "
            "measure with --repeats 3"
        )
    rng = np.random.default_rng(statistics.SEED)
    # Medians that other runs might have had. One degree of freedom can draw factors beyond floating point; 1e21 is far enough.
    errors = ((step.value, statistics.error_draws(step, rng, DRAWS)) for step in steps if step is not None)
    draws = np.stack([value * np.exp(np.clip(drawn, -50.0, 50.0)) for value, drawn in errors], axis=1)
    middle = np.array([[step.value for step in steps if step is not None]])
    terms = fit(counts, middle, strong)[0]
    fitted = features(counts, strong) @ terms
    left = len(counts) - int((terms > 0).sum())
    residual = float(np.sqrt(np.sum(np.log(middle[0] / fitted) ** 2) / left)) if left else None
    draws = draws * np.exp((residual or 0.0) * rng.standard_normal(draws.shape))
    times = fit(counts, draws, strong) @ features(further, strong).T
    least = np.quantile(times, TAIL, axis=0) if further else ()
    return Model(
        dict(zip(TERMS, map(float, terms), strict=True)),
        residual,
        counts,
        tuple(Bound(count, float(seconds)) for count, seconds in zip(further, least, strict=True)),
    )
