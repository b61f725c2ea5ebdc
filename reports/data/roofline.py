"""The best rates of a device: the best product of matrices and the best elementwise operation of one run.

These measured roofs stand beside the datasheet's peak and show how much of it any framework reached. They come from the cells of the same
device and precision, from all frameworks that passed parity: what one framework reached, the device can do. A point whose level changed
midway does not count. The best of several medians tends to lie above the truth, by about as much as a median scatters. A convolution
may lie above the roof of the products: Winograd's algorithm multiplies less often than is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.collectives import BETWEEN
from reports.data.model import MeasuredCell, Rate
from reports.data.operators import RateCurve
from reports.data.peaks import beyond_cache

PRODUCTS = ("matmul", "matmul_flat", "matmul_thin")
STREAMS = ("add", "mul", "div")


@dataclass(frozen=True)
class Roof:
    """One roof, and where its windows are: those of this operation at this size in the cell's table `operations`."""

    value: float  # floating-point operations a second, or bytes a second
    cell: MeasuredCell
    operation: str
    direction: str
    rate: Rate


@dataclass(frozen=True)
class Ceiling:
    """The best rates of a device in one run at one precision; None if the run has no point for it."""

    run_id: str
    work: Roof | None
    traffic: Roof | None

    def share(self, curve: RateCurve, rate: Rate) -> float | None:
        """The rate's share of the roof that bounds it. None where no roof is known, or the memory does not bound the operation."""
        if not curve.by_traffic:
            return rate.gflops * 1e9 / self.work.value if self.work and rate.mop else None
        if self.traffic is None or not _streams(curve, rate):
            return None
        return rate.gigabytes * 1e9 / self.traffic.value


def ceilings(curves: Sequence[RateCurve]) -> dict[str, Ceiling]:
    """Run id -> its device's best rates, from the curves of one group of comparable cells. Cells of several devices have no ceiling."""
    runs = dict.fromkeys(cell.run_id for curve in curves for cell, _ in curve.cells if cell.key.devices == 1)
    reached = {}
    for run in runs:
        products = (point for point in _points(curves, run, PRODUCTS) if point[1].mop)
        streams = (point for point in _points(curves, run, STREAMS) if _streams(point[0], point[1]))
        work = _best(products, lambda rate: rate.gflops * 1e9)
        traffic = _best(streams, lambda rate: rate.gigabytes * 1e9)
        if work or traffic:
            reached[run] = Ceiling(run, work, traffic)
    return reached


_Point = tuple[RateCurve, Rate, MeasuredCell]


def _points(curves: Sequence[RateCurve], run: str, operations: Sequence[str]) -> Iterable[_Point]:
    for curve in curves:
        for cell, rates in curve.cells:
            if cell.run_id == run and curve.operation in operations:
                yield from ((curve, rate, cell) for rate in rates if not (rate.shift or curve.refused(rate)))


def _streams(curve: RateCurve, rate: Rate) -> bool:
    """True if the device's memory bounds the rate: it is no copy from or to the host or another device, and does not fit a cache."""
    return curve.direction not in BETWEEN and beyond_cache(rate, curve.device_kind)


def _best(points: Iterable[_Point], value: Callable[[Rate], float]) -> Roof | None:
    best = max(points, key=lambda point: value(point[1]), default=None)
    if best is None:
        return None
    curve, rate, cell = best
    return Roof(value(rate), cell, curve.operation, curve.direction, rate)
