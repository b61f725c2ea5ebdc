"""The devices' telemetry while a repeat ran: stored rows as a few lines over time, the CPUs that a cell got, and the cells beside it."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reports.data.model import MeasuredCell, Repeat, Signal, Tables
from reports.wording import listing, number, plural
from runner.results import gpu_facts
from runner.results.cells import Key, middle
from runner.results.rows import columns, in_order, parts
from runner.results.statistics import Array

if TYPE_CHECKING:
    import pyarrow as pa


# The environments of the cells: cells that ran in the same environment stand together.

_SAME = (
    "image_digest",
    "lock_sha256",
    "bench_sha256",
    "framework_version",
    "python_version",
    "cuda_version",
    "cudnn_version",
    "driver_version",
    "device_name",
)


@dataclass(frozen=True)
class Environment:
    """One image on one device, the cells that ran in it, and every fact that the first of them recorded, flat."""

    cells: tuple[MeasuredCell, ...]
    facts: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]

    @property
    def row(self) -> Mapping[str, Any]:
        return self.cells[0].row

    @property
    def threads(self) -> str:
        """The threads that the framework says it uses."""
        settings = self.cells[0].environment.get("settings")
        threads = settings.get("threads", settings.get("threads_asked")) if isinstance(settings, dict) else None
        return "–" if threads is None else str(threads)


def environments(tables: Tables) -> tuple[Environment, ...]:
    """The environments of all cells that recorded one."""
    same: dict[tuple[str, ...], list[MeasuredCell]] = {}
    for cell in tables.cells:
        if cell.environment:
            same.setdefault((cell.label, *(str(cell.row.get(name)) for name in _SAME)), []).append(cell)
    return tuple(_environment(cells) for cells in same.values())


def _environment(cells: list[MeasuredCell]) -> Environment:
    facts: dict[str, str] = {}
    varying: set[str] = set()
    for cell in cells:
        for name, value in _flat(cell.environment):
            # Facts such as the clock's zero differ between any two processes. Versions and settings should not.
            if facts.setdefault(name, value) != value and name.split(" ")[0] in ("versions", "settings"):
                varying.add(name)
    return Environment(tuple(cells), tuple(facts.items()), tuple(sorted(varying)))


def _flat(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if name in ("event", "t", "v"):
            continue
        if isinstance(value, dict):
            for inner, deeper in value.items():
                yield f"{name} {inner}", deeper if isinstance(deeper, str) else json.dumps(deeper)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)


# The values of all lines of a page together; and of one line, the fewest and the most: a plot is some hundred pixels wide.
VALUES_IN_ALL = 100_000
FEWEST, MOST = 24, 240

# A node has eight GPUs. More lines would only cover each other.
MOST_DEVICES = 8

HELD_BACK = "clock held back"
CPUS_BUSY = "CPUs busy"

FEW = 0.5  # of the CPUs that a cell was given
# CPUs. A loop of steps on a CPU never waits, so a cell keeps one CPU busy, however small its network is. The rest is for what is recorded.
LEAST = 0.8

# column -> (the quantity, its unit, and how many of the column's unit make one of it)
_OF_A_GPU = {
    "power_watts": ("power", "W", 1.0),
    "temperature_celsius": ("temperature", "°C", 1.0),
    "sm_megahertz": ("clock", "MHz", 1.0),
    "utilisation_percent": ("utilisation", "% busy", 1.0),
    "memory_bytes": ("memory", "GiB", 2.0**30),
}
# The columns of the telemetry that the lines are made of.
_OF_THE_CELL = ("seconds", "cpu_seconds", "memory_bytes")
_OF_ANY_GPU = ("seconds", *_OF_A_GPU, "throttle_reasons")


def values_each(repeats: int) -> int:
    """The most values of a line on a page with these repeats."""
    return max(FEWEST, min(MOST, VALUES_IN_ALL // max(1, 4 * repeats)))


def signals(stored: pa.Table | None, most: int) -> tuple[Signal, ...]:
    """The lines of one repeat's telemetry, at most `most` values each: those of its GPUs, and the busy CPUs and the memory of the cell."""
    if stored is None or not most:
        return ()
    devices = {
        str(device): columns(in_order(part, "seconds"), _OF_THE_CELL if device == "cpu" else _OF_ANY_GPU)
        for (device,), part in sorted(parts(stored, ("device",)), key=itemgetter(0))
    }
    lines = (
        _of_the_cell(of, most) if device == "cpu" else _of_a_gpu(device, of, most) for device, of in devices.items()
    )
    return tuple(line for of_device in lines for line in of_device)


def _of_the_cell(of: Mapping[str, Array], most: int) -> list[Signal]:
    seconds = of["seconds"]
    return [
        *_line("cpu", CPUS_BUSY, "CPUs", *_rate(seconds, of["cpu_seconds"]), most),
        *_line("cpu", "memory of the cell", "GiB", seconds, of["memory_bytes"] / 2.0**30, most),
    ]


def _of_a_gpu(device: str, of: Mapping[str, Array], most: int) -> list[Signal]:
    lines: list[Signal] = []
    for column, (name, unit, factor) in _OF_A_GPU.items():
        lines += _line(device, name, unit, of["seconds"], of[column] / factor, most)
    reasons = np.nan_to_num(of["throttle_reasons"]).astype(np.int64)
    clock = np.where(reasons & gpu_facts.HELD_BACK, of["sm_megahertz"], math.nan)
    return lines + _line(device, HELD_BACK, "MHz", of["seconds"], clock, most)


def _rate(seconds: Array, counter: Array) -> tuple[Array, Array]:
    """A counter's rise a second, between its samples. If it falls, a process of the cell has ended, and the rate is not known."""
    recorded = np.isfinite(counter)
    seconds, counter = seconds[recorded], counter[recorded]
    step = np.diff(seconds)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.diff(counter) / step
    return (seconds[1:] + seconds[:-1]) / 2, np.where((step > 0) & (rate >= 0), rate, math.nan)


def _line(device: str, name: str, unit: str, seconds: Array, values: Array, most: int) -> list[Signal]:
    """The line; none where nothing was recorded. More than `most` values become means over equal spans of time."""
    recorded = np.isfinite(values) & np.isfinite(seconds)
    seconds, values = seconds[recorded], values[recorded]
    if not len(values):
        return []
    low, high = float(np.min(values)), float(np.max(values))
    if len(values) > most and seconds[-1] > seconds[0]:
        place = ((seconds - seconds[0]) / (seconds[-1] - seconds[0]) * most).astype(np.int64).clip(0, most - 1)
        count = np.bincount(place, minlength=most)
        kept = count > 0
        seconds, values = (np.bincount(place, column, most)[kept] / count[kept] for column in (seconds, values))
    return [Signal(device, name, unit, seconds, values, low, high)]


def described(repeat: Repeat) -> str:
    """The samples in words: the range of each quantity over all devices."""
    parts = []
    for name, unit in dict.fromkeys(
        (signal.name, signal.unit) for signal in repeat.signals if signal.name != HELD_BACK
    ):
        same = [signal for signal in repeat.signals if signal.name == name]
        low, high = (number(end) for end in (min(signal.low for signal in same), max(signal.high for signal in same)))
        values = low if low == high else f"{low} to {high}"
        parts.append(f"{values} {name}" if unit == "CPUs" else f"{name} {values} {unit}")
    gpus = {signal.device for signal in repeat.signals if signal.device != "cpu"}
    held = any(signal.name == HELD_BACK for signal in repeat.signals)
    drawn = f", {MOST_DEVICES} of them drawn" if len(gpus) > MOST_DEVICES else ""
    where = f" ({plural(len(gpus), 'GPU')}{drawn})" if len(gpus) > 1 else ""
    end = "; at the crosses the clock was held back by power, heat or the supply" if held else ""
    return f"Sampled from outside the cell{where}: {listing(parts)}{end}." if parts else ""


# -- The CPUs that a cell got -------------------------------------------------------------------------------------------------------


def starved(cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    """The cells, each with the share of its CPUs if it is few, and work took them that is not the cell's own, or may have.

    It did where the cell got less than one CPU. It may have where another framework got half or more of its own at the same work: that
    work can use the CPUs. It did not where what other work took was recorded, and is little.
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
        and (cell.other_work or middle((repeat.row for repeat in cell.measured), "other_cpus") is None)
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


# -- The cells beside it ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beside:
    """A repeat of a cell of the same run that ran at the same time, and for how many seconds."""

    cell: MeasuredCell
    repeat: int
    seconds: float


MOST_BESIDE = 6


class Neighbours(NamedTuple):
    """The cells that ran at the same time as a repeat: the longest, and the number of the others."""

    longest: tuple[Beside, ...]
    more: int


def beside(tables: Tables) -> Mapping[tuple[str, int], Neighbours]:
    """(cell's anchor, repeat) -> what ran at the same time in its run."""
    neighbours: dict[tuple[str, int], list[Beside]] = {}
    for spans in _spans(tables.cells).values():
        running: list[tuple[float, int, float, MeasuredCell, int]] = []  # a heap by their ends
        for at, (begin, end, cell, repeat) in enumerate(spans):
            while running and running[0][0] <= begin:
                heapq.heappop(running)
            for until, _, _, other, number_ in running:
                both = min(until, end) - begin
                neighbours.setdefault((cell.anchor, repeat), []).append(Beside(other, number_, both))
                neighbours.setdefault((other.anchor, number_), []).append(Beside(cell, repeat, both))
            heapq.heappush(running, (end, at, begin, cell, repeat))
    ordered = {place: sorted(others, key=lambda neighbour: -neighbour.seconds) for place, others in neighbours.items()}
    return {
        place: Neighbours(tuple(others[:MOST_BESIDE]), max(0, len(others) - MOST_BESIDE))
        for place, others in ordered.items()
    }


def _spans(cells: Iterable[MeasuredCell]) -> dict[str, list[tuple[float, float, MeasuredCell, int]]]:
    """Run -> (begin, end, cell, repeat) of every repeat whose times were recorded, by begin."""
    spans: dict[str, list[tuple[float, float, MeasuredCell, int]]] = {}
    for cell in cells:
        for repeat in cell.repeats:
            begin, wall = repeat.row.get("started_unix"), repeat.row.get("wall_seconds")
            if begin is not None and wall is not None and math.isfinite(begin) and math.isfinite(wall):
                spans.setdefault(cell.run_id, []).append((begin, begin + wall, cell, repeat.number))
    return {run: sorted(repeats, key=lambda span: span[:2]) for run, repeats in spans.items()}
