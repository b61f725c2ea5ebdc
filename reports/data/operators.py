"""Curves of single operations: from the stored windows to a rate for each size, cell by cell; and the device's peaks, its roofline, and
the share of them that a network's step uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.collectives import BETWEEN, COLLECTIVES
from reports.data.costs import FLOOR, FLOOR_MEASURED, OF_DATASHEET, OF_OWN_PRODUCT
from reports.data.model import Group, MeasuredCell, Rate, Rates
from runner.results import statistics, steadiness
from runner.results.cells import Key
from runner.results.gpu_facts import ABOVE_PEAK, FEWER_IN_CONVOLUTION, Datasheet, datasheet
from runner.results.plausible.counts import least_bytes, model_operations
from runner.results.rows import chosen, floats, in_order, parts

if TYPE_CHECKING:
    import pyarrow as pa


# Which rates a GPU's datasheet refuses (runner.results.gpu_facts). A part of a GPU (MIG) and a CPU have no peak here.

# Operations that may multiply less often than their count says.
_FEWER = {"conv2d": FEWER_IN_CONVOLUTION}

# The memory does not bound what fits a cache. The largest cache of a GPU (RTX PRO 6000) is 128 MB; some servers' CPUs have larger ones.
_BEYOND_CACHE = {"cuda": 512e6, "cpu": 100e6}


def beyond_cache(rate: Rate, device_kind: str) -> bool:
    """True if the inputs that take turns are so large that each run reads them from memory."""
    return rate.bytes * rate.buffers >= _BEYOND_CACHE.get(device_kind, _BEYOND_CACHE["cuda"])


@dataclass(frozen=True)
class Peak(Datasheet):
    """One GPU's datasheet, held against rates that were measured."""

    def share_of_work(self, rate: Rate) -> float | None:
        """Of the arithmetic. None where nothing is computed or the datasheet has no figure."""
        return rate.gflops * 1e9 / self.flops if self.flops and rate.mop else None

    def share_of_traffic(self, rate: Rate, direction: str) -> float | None:
        """Of the memory. None where the inputs fit a cache, or the bytes go to another device or the host."""
        if direction in BETWEEN or not beyond_cache(rate, "cuda"):
            return None
        return rate.gigabytes * 1e9 / self.bytes

    def refuses(self, rate: Rate, operation: str, direction: str) -> bool:
        """True if the device cannot have done it: then the clock was stopped before the work was done, or work was left out."""
        work, traffic = self.share_of_work(rate), self.share_of_traffic(rate, direction)
        return (work or 0.0) > ABOVE_PEAK * _FEWER.get(operation, 1.0) or (traffic or 0.0) > ABOVE_PEAK


def peak_of(key: Key) -> Peak | None:
    """The peak of the device of `key` at its precision; None where it is not known."""
    if key.device_kind != "cuda" or key.devices != 1:
        return None
    known = datasheet(key.device_model, key.precision)
    return Peak(known.flops, known.bytes) if known else None


_POINT = ("run_id", "cell_id", "operation", "direction", "size")


@dataclass(frozen=True)
class RateCurve:
    """One operation in one direction: the rates of each cell that has it, from small to large."""

    operation: str
    direction: str
    cells: tuple[tuple[MeasuredCell, tuple[Rate, ...]], ...]
    peak: Peak | None = None  # of the device at the cells' precision, where its datasheet is known
    device_kind: str = "cuda"
    devices: int = 1

    @property
    def by_traffic(self) -> bool:
        """True if its rate is in bytes: at its largest size it does less than one operation a byte."""
        largest = max((rates[-1] for _, rates in self.cells), key=lambda rate: rate.bytes)
        return largest.mop * 1e6 < largest.bytes

    @property
    def is_collective(self) -> bool:
        return self.operation in COLLECTIVES

    @property
    def unit(self) -> str:
        return "GB/s" if self.by_traffic else "GFLOP/s"

    def value(self, rate: Rate) -> float:
        return rate.gigabytes if self.by_traffic else rate.gflops

    def share(self, rate: Rate) -> float | None:
        """The rate's share of the device's peak."""
        if self.peak is None:
            return None
        return self.peak.share_of_traffic(rate, self.direction) if self.by_traffic else self.peak.share_of_work(rate)

    def refused(self, rate: Rate) -> bool:
        """True if the rate lies above the device's limit. Such a rate is not printed, drawn or called the best."""
        return self.peak is not None and self.peak.refuses(rate, self.operation, self.direction)

    def bus_bandwidth(self, rate: Rate) -> float | None:
        """Of a collective in GB/s, as nccl-tests defines it: what each device's link must carry, whatever the number of devices.

        The "algorithm bandwidth", the bytes of a buffer over the time, is the rate itself.
        """
        collective = COLLECTIVES.get(self.operation)
        return rate.gigabytes * collective.bus(self.devices) if collective else None

    @property
    def sizes(self) -> tuple[str, ...]:
        """Every size that a cell has, from small to large."""
        sizes = {rate.size: (rate.mop, rate.bytes) for _, rates in self.cells for rate in rates}
        return tuple(sorted(sizes, key=lambda size: sizes[size]))

    def rows(self) -> list[tuple[str, list[Rate | None]]]:
        """For each size: its rate in each cell."""
        columns = [{rate.size: rate for rate in rates} for _, rates in self.cells]
        return [(size, [column.get(size) for column in columns]) for size in self.sizes]

    def best(self, rates: Iterable[Rate | None]) -> Rate | None:
        """The rate of a row that is above every other beyond what repeats scatter; None where there is none.

        It takes two repeats of each. The chance that a row of rates that are truly alike has a best one is at most 5 %: any of
        its pairs might have been set apart (Bonferroni).
        """
        believed = [rate for rate in rates if rate and not self.refused(rate)]
        if len(believed) < 2 or any(len(rate.repeats) < 2 for rate in believed):
            return None
        best, *others = sorted(believed, key=self.value, reverse=True)
        level = 1 - (1 - statistics.LEVEL) / math.comb(len(believed), 2)
        ratios = (statistics.ratio_estimate(rate.repeats, best.repeats, level) for rate in others)
        return best if all(ratio and ratio.low and ratio.low > 1 for ratio in ratios) else None


def rates(stored: pa.Table) -> dict[tuple[str, str], Rates]:
    """(run id, cell id) -> the rates of its operations. `stored` is the store's table `operations`, of any number of runs."""
    measured = chosen(stored, (floats(stored, "runs") > 0) & (floats(stored, "seconds") > 0))
    grouped: dict[tuple[str, str], dict[tuple[str, str], list[Rate]]] = {}
    for (run, cell, operation, direction, size), part in parts(measured, _POINT):
        part = in_order(part, "repeat", "index")
        seconds: statistics.Array = floats(part, "seconds") / floats(part, "runs")
        mop, count, buffers = (float(floats(part, name)[0]) for name in ("mop", "bytes", "buffers"))
        numbers = floats(part, "repeat")
        repeats = tuple(seconds[numbers == number] for number in np.unique(numbers))
        shift = next(filter(None, map(steadiness.level_shift, repeats)), None)
        median = float(np.median(seconds))
        kernels = tuple(sorted({kernel for kernel in part["kernel"].to_pylist() if kernel}))
        rate = Rate(size, mop, count, median, len(part), shift, int(buffers), repeats, kernels)
        grouped.setdefault((run, cell), {}).setdefault((operation, direction), []).append(rate)
    return {place: {key: tuple(_grown(each)) for key, each in curves.items()} for place, curves in grouped.items()}


def _grown(rates: Iterable[Rate]) -> list[Rate]:
    return sorted(rates, key=lambda rate: (rate.mop, rate.bytes))


def curves(group: Group, stored: Mapping[tuple[str, str], Rates]) -> tuple[RateCurve, ...]:
    """The curves of a group of comparable cells, in the order in which they were measured. A cell that did not pass parity has none."""
    measured = {
        cell.anchor: (cell, stored.get((cell.run_id, cell.cell_id), {}))
        for cell in group.cells
        if cell.status == "ok" and cell.parity_passed
    }
    peak = peak_of(group.key)
    keys = list(dict.fromkeys(key for _, rates in measured.values() for key in rates))
    return tuple(
        RateCurve(
            operation=operation,
            direction=direction,
            cells=tuple(
                (cell, rates[operation, direction])
                for cell, rates in measured.values()
                if (operation, direction) in rates
            ),
            peak=peak,
            device_kind=group.key.device_kind,
            devices=group.key.devices,
        )
        for operation, direction in keys
    )


# dl_bench published the bounds of MEDIUM. LARGE holds what it plotted as large; its upper bound is ours.
_CLASSES = ((20, "SMALL"), (1_000, "MEDIUM"), (100_000, "LARGE"))


def size_class(mop: float) -> str:
    """dl_bench's category of an operation, by its million floating-point operations; empty where it computes nothing."""
    return next((name for end, name in _CLASSES if mop < end), "VERY_LARGE") if mop > 0 else ""


# The best rates of a device: the best product of matrices and the best elementwise operation of one run.
#
# These measured roofs stand beside the datasheet's peak and show how much of it any framework reached. They come from the cells of the
# same device and precision, from all frameworks that passed parity: what one framework reached, the device can do. A point whose level
# changed midway does not count. The best of several medians tends to lie above the truth, by about as much as a median scatters. A
# convolution may lie above the roof of the products: Winograd's algorithm multiplies less often than is counted.

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


# Model FLOP utilisation, the arithmetic of a cell's network as a share of what its device can do; and the floor of its memory.
#
# The operations are those of the network as its authors write it, attention counted whole and nothing recomputed: training takes three
# times the operations of the way forward (Chowdhery et al. 2022, appendix B). A kernel that multiplies less often (Winograd, a causal
# mask) shows a higher share than its units were busy.

_Place = tuple[str, str, str, str]


def utilised(cells: Sequence[MeasuredCell], rates: Mapping[tuple[str, str], Rates]) -> list[MeasuredCell]:
    """The cells with their shares among the costs; `rates` are those of cells of single operations by run and cell."""
    products: dict[_Place, float] = {}
    streams: dict[_Place, float] = {}
    for cell in cells:
        if cell.parity_passed and cell.key.devices == 1:
            of_operations, place = rates.get((cell.run_id, cell.cell_id), {}), _place(cell)
            steady = [
                (operation, direction, rate)
                for (operation, direction), points in of_operations.items()
                for rate in points
                if not rate.shift
            ]
            found = [rate.gflops * 1e9 for name, _, rate in steady if name in PRODUCTS and rate.mop]
            products[place] = max([*found, products.get(place, 0.0)])
            read = [
                rate.gigabytes * 1e9
                for name, direction, rate in steady
                if _streams_utilisation(cell, name, direction, rate)
            ]
            streams[place] = max([*read, streams.get(place, 0.0)])
    return [replace(cell, costs={**cell.costs, **_shares(cell, products), **_floors(cell, streams)}) for cell in cells]


def _streams_utilisation(cell: MeasuredCell, operation: str, direction: str, rate: Rate) -> bool:
    """True if the memory bounds the rate."""
    return operation in STREAMS and direction not in BETWEEN and beyond_cache(rate, cell.key.device_kind)


def _floors(cell: MeasuredCell, streams: Mapping[_Place, float]) -> dict[str, float]:
    """The seconds in which the bytes of a step are read."""
    due = least_bytes(cell.key.workload, cell.items_per_step or 0.0, cell.key.precision)
    if due is None or cell.step is None or not cell.items_per_step:
        return {}
    known = datasheet(cell.key.device_model, cell.key.precision) if cell.key.device_kind == "cuda" else None
    limits = {FLOOR: known and known.bytes, FLOOR_MEASURED: streams.get(_place(cell))}
    return {name: due / limit for name, limit in limits.items() if limit}


def _place(cell: MeasuredCell) -> _Place:
    """The run, the device, and the precision in which products are computed: mixed precision multiplies in its half type."""
    return cell.run_id, cell.key.device_kind, cell.key.device_model, cell.key.precision.removeprefix("amp-")


def _shares(cell: MeasuredCell, products: Mapping[_Place, float]) -> dict[str, float]:
    each = model_operations(cell.key.workload)
    if each is None or cell.step is None or not cell.items_per_step:
        return {}
    reached = each * cell.items_per_step / cell.step.value / cell.key.devices
    known = datasheet(cell.key.device_model, cell.key.precision) if cell.key.device_kind == "cuda" else None
    limits = {OF_DATASHEET: known and known.flops, OF_OWN_PRODUCT: products.get(_place(cell))}
    return {name: reached / limit for name, limit in limits.items() if limit}
