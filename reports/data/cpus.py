"""How many of its CPUs a cell got, and whether other work may have taken them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from reports.data.model import MeasuredCell, Repeat
from reports.data.telemetry_signals import CPUS_BUSY
from runner.results.cells import Key

FEW = 0.5  # of the CPUs that a cell was given
# CPUs. A loop of steps on a CPU never waits, so a cell keeps one CPU busy, however small its network is. The rest is for what is recorded.
LEAST = 0.8


def starved(cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    """The cells, each with the share of its CPUs if it is few, and work took them that is not the cell's own, or may have.

    It did where the cell got less than one CPU. It may have where another framework got half or more of its own at the same work: that
    work can use the CPUs.
    """
    cells = list(cells)
    busy = {cell.anchor: cpus_busy(cell) for cell in cells}
    shares = {
        cell.anchor: kept / threads
        for cell in cells
        if (kept := busy[cell.anchor]) is not None and (threads := given(cell))
    }
    most: dict[tuple[Key, int | None], float] = {}
    for cell in _on_cpus(cells):
        place = cell.key, given(cell)
        most[place] = max(most.get(place, 0.0), shares.get(cell.anchor, 0.0))
    few = {
        cell.anchor: share
        for cell in _on_cpus(cells)
        if (share := shares.get(cell.anchor, 1.0)) < FEW
        and (most[cell.key, given(cell)] >= FEW or (busy[cell.anchor] or 0.0) < LEAST)
    }
    return [replace(cell, cpu_share=few[cell.anchor]) if cell.anchor in few else cell for cell in cells]


def _on_cpus(cells: Sequence[MeasuredCell]) -> list[MeasuredCell]:
    return [cell for cell in cells if cell.key.device_kind == "cpu" and cell.status == "ok"]


def given(cell: MeasuredCell) -> int | None:
    """How many threads the cell said that it uses; None where it did not."""
    settings = cell.environment.get("settings")
    threads = settings.get("threads", settings.get("threads_asked")) if isinstance(settings, dict) else None
    return threads if isinstance(threads, int) and threads > 0 else None


def cpus_busy(cell: MeasuredCell) -> float | None:
    """How many CPUs the cell kept busy over its steady windows: the median over its repeats; None where that was not recorded."""
    busy = [value for repeat in cell.measured if isinstance(repeat, Repeat) and (value := _busy(repeat)) is not None]
    return float(np.median(busy)) if busy else None


def _busy(repeat: Repeat) -> float | None:
    line = next((signal for signal in repeat.signals if signal.name == CPUS_BUSY), None)
    steady = np.array([stage == "steady" for stage in repeat.windows.stage])
    if line is None or not steady.any():
        return None
    begin = repeat.windows.begin[steady][0]
    end = repeat.windows.begin[steady][-1] + repeat.windows.seconds[steady][-1]
    inside = line.values[(line.seconds >= begin) & (line.seconds <= end)]
    return float(np.nanmean(inside)) if np.isfinite(inside).any() else None
