"""Curves of single operations: from the stored windows to a rate for each size, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from reports.data.model import Group, MeasuredCell, Rate, Rates
from reports.data.peaks import Peak, peak_of
from runner.results import statistics
from runner.results.statistics import Array

_POINT = ["run_id", "cell_id", "operation", "direction", "size"]


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
        """Whether its rate is in bytes: at its largest size it does less than one operation a byte."""
        largest = max((rates[-1] for _, rates in self.cells), key=lambda rate: rate.bytes)
        return largest.mop * 1e6 < largest.bytes

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
        """Whether the rate lies above what the device can do. Such a rate is not printed, drawn or called the best."""
        return self.peak is not None and self.peak.refuses(rate, self.operation, self.direction)

    def bus_bandwidth(self, rate: Rate) -> float | None:
        """Of an all-reduce in GB/s, as nccl-tests defines it: what each device's link must carry, whatever the number of devices.

        The "algorithm bandwidth", the bytes of a buffer over the time, is the rate itself.
        """
        return rate.gigabytes * 2 * (self.devices - 1) / self.devices if self.direction == "reduce" else None

    @property
    def sizes(self) -> tuple[str, ...]:
        """Every size that a cell has, from small to large."""
        sizes = {rate.size: (rate.mop, rate.bytes) for _, rates in self.cells for rate in rates}
        return tuple(sorted(sizes, key=lambda size: sizes[size]))

    def rows(self) -> list[tuple[str, list[Rate | None], float]]:
        """For each size: its rate in each cell, and the best value."""
        columns = [{rate.size: rate for rate in rates} for _, rates in self.cells]
        rows = []
        for size in self.sizes:
            rates = [column.get(size) for column in columns]
            believed = (self.value(rate) for rate in rates if rate and not self.refused(rate))
            rows.append((size, rates, max(believed, default=0.0)))
        return rows


def rates(frame: pd.DataFrame) -> dict[tuple[str, str], Rates]:
    """(run id, cell id) -> the rates of its operations. `frame` is the store's table `operations`, of any number of runs."""
    frame = frame[(frame["runs"] > 0) & (frame["seconds"] > 0)]
    grouped: dict[tuple[str, str], dict[tuple[str, str], list[Rate]]] = {}
    for (run, cell, operation, direction, size), part in frame.groupby(_POINT, sort=False):
        part = part.sort_values(["repeat", "index"], kind="stable")
        seconds: Array = (part["seconds"] / part["runs"]).to_numpy(dtype="float64")
        first = part.iloc[0]
        shift = statistics.level_shift(seconds) if part["repeat"].nunique() == 1 else None
        median = float(pd.Series(seconds).median())
        counted = float(first["mop"]), float(first["bytes"])
        rate = Rate(str(size), *counted, median, len(part), shift, int(first["buffers"]))
        grouped.setdefault((str(run), str(cell)), {}).setdefault((str(operation), str(direction)), []).append(rate)
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
