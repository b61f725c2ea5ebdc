"""The summary of a cell's telemetry: energy, heat and throttling over its steady windows. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.machine.telemetry import HERTZ
from runner.machine.telemetry_cpu import Row
from runner.results import clock_settings


def on_the_cells_clock(rows: Iterable[Mapping[str, Any]], started_unix: float) -> list[Row]:
    """The rows with `seconds` from the start of the cell's process, as the samples have it."""
    return [{"seconds": row["unix"] - started_unix, **{k: v for k, v in row.items() if k != "unix"}} for row in rows]


def summary(rows: Sequence[Row], samples: Sequence[Mapping[str, Any]], step: float = 1 / HERTZ) -> Row:
    """The columns of `cells` that telemetry gives, over the steady windows: energy, joules per item, heat, memory, throttling, other work.

    `rows` and `samples` are on the same clock; `step` seconds lie between the rows of a device.
    Every value is None where the devices did not say.
    """
    steady = [sample for sample in samples if sample["stage"] == "steady"]
    if not steady:
        return {}
    devices: dict[str, list[Row]] = {}
    for row in rows:
        devices.setdefault(row["device"], []).append(row)
    begin = min(sample["begin_seconds"] for sample in steady)
    end = max(sample["begin_seconds"] + sample["seconds"] for sample in steady)
    cpu = devices.pop("cpu", [])
    others = {"other_cpus": other_cpus(cpu, begin, end)}
    of_cpu = [row for row in cpu if row.get("energy_joules") is not None]
    gpus = devices or ({"cpu": of_cpu} if of_cpu else {})
    return others | _of_devices(gpus, begin, end, sum(sample["items"] for sample in steady), step) if gpus else others


def other_cpus(rows: Sequence[Row], begin: float, end: float) -> float | None:
    """How many CPUs other work than the cell's kept busy between two times; None where no two rows within them say.

    The counters move in steps of a hundredth of a second, so a little less than none is none.
    """
    points: list[tuple[float, float]] = [
        (row["seconds"], row["machine_cpu_seconds"] - row["cpu_seconds"])
        for row in rows
        if begin <= row["seconds"] <= end
        and row.get("machine_cpu_seconds") is not None
        and row.get("cpu_seconds") is not None
    ]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    return max(0.0, (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]))


def _of_devices(gpus: Mapping[str, Sequence[Row]], begin: float, end: float, items: int, step: float) -> Row:
    """The columns of a cell's GPUs, or of the packages of its CPU."""
    spent = [energy(of_gpu, begin, end, step) for of_gpu in gpus.values()]
    joules = sum(each for each, _ in spent if each is not None) if all(each is not None for each, _ in spent) else None
    inside = [row for of_gpu in gpus.values() for row in of_gpu if begin <= row["seconds"] <= end]
    reasons = 0
    for row in inside:
        reasons |= int(row.get("throttle_reasons") or 0)
    reported = any(row.get("throttle_reasons") is not None for row in inside)
    heat = [row["temperature_celsius"] for row in inside if row.get("temperature_celsius") is not None]
    used = [row["memory_bytes"] for row in inside if row["device"] != "cpu" and row.get("memory_bytes") is not None]
    return {
        "energy_joules": joules,
        "energy_source": " and ".join(sorted({source for _, source in spent})) if joules is not None else None,
        "joules_per_item": joules / items if joules is not None and items else None,
        "mean_power_watts": joules / (end - begin) if joules is not None and end > begin else None,
        "max_temperature_celsius": max(heat, default=None),
        "device_used_bytes": max(used, default=None),
        "throttled": bool(reasons & clock_settings.THROTTLED) if reported else None,
        "throttled_by": clock_settings.names(reasons) if reported else None,
    }


def energy(rows: Sequence[Row], begin: float, end: float, step: float = 1 / HERTZ) -> tuple[float | None, str]:
    """(joules that one device took between two times, "counter" or "power"): of its counter, else the integral of its power.

    None where the rows do not reach from one end to the other, within two sampling steps.
    """
    for column, source in (("energy_joules", "counter"), ("power_watts", "power")):
        points = [(row["seconds"], row[column]) for row in rows if row.get(column) is not None]
        if len(points) < 2 or points[0][0] > begin + 2 * step or points[-1][0] < end - 2 * step:
            continue
        if source == "counter":
            return value_at(points, end) - value_at(points, begin), source
        edges = [
            (begin, value_at(points, begin)),
            *(p for p in points if begin < p[0] < end),
            (end, value_at(points, end)),
        ]
        return integral(edges), source
    return None, "none"


def integral(points: Sequence[tuple[float, float]]) -> float:
    """The area below the straight lines between points (time, value)."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))


def value_at(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value at a time, on the straight line between two points (time, value); beyond the ends, on the line of the last two."""
    after = next((n for n, (seconds, _) in enumerate(points) if seconds >= at), len(points) - 1)
    (t0, v0), (t1, v1) = points[max(0, after - 1)], points[max(1, after)]
    return v0 if t1 == t0 else v0 + (v1 - v0) * (at - t0) / (t1 - t0)
