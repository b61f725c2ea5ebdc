"""The agreement of two ways to measure the same: a GPU's energy counter and its power over time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any


def energies(steps: Iterable[Sequence[Mapping[str, Any]]]) -> dict[str, tuple[float, float]]:
    """GPU -> (joules by its counter, joules by its power over time), over all steps in which it gave both.

    Each step's telemetry comes as rows. `cpu` has no power.
    """
    sums: dict[str, tuple[float, float]] = {}
    for rows in steps:
        for device in {str(row["device"]) for row in rows}:
            if both := _of_one_step([row for row in rows if row["device"] == device]):
                before = sums.get(device, (0.0, 0.0))
                sums[device] = before[0] + both[0], before[1] + both[1]
    return sums


def _of_one_step(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    points = [
        (row["unix"], row["energy_joules"], row["power_watts"])
        for row in rows
        if row.get("energy_joules") is not None and row.get("power_watts") is not None
    ]
    if len(points) < 2:
        return None
    integral = sum((after[0] - before[0]) * (before[2] + after[2]) / 2 for before, after in pairwise(points))
    return points[-1][1] - points[0][1], integral


def share(value: float, other: float) -> str:
    """How far a value is from another, in words."""
    return f"{100 * (value / other - 1):+.1f} %" if other > 0 else "which cannot be compared"
