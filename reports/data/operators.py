"""Curves of single operations: from the stored windows to a rate for each size, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.collectives import COLLECTIVES
from reports.data.model import Group, MeasuredCell, Rate, Rates
from reports.data.peaks import Peak, peak_of
from runner.results import statistics, steadiness
from runner.results.rows import chosen, floats, in_order, parts
from runner.results.statistics import Array

if TYPE_CHECKING:
    import pyarrow as pa

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
        seconds: Array = floats(part, "seconds") / floats(part, "runs")
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
