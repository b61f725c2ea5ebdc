"""The agreement of two ways to measure the same: a GPU's energy counter and its power over time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.admission.telemetry_summary import integral


def energies(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """GPU -> (joules by its counter, joules by its power over time) in the telemetry of one step, where it gave both.

    `cpu` has no power.
    """
    of_each: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("energy_joules") is not None and row.get("power_watts") is not None:
            of_each.setdefault(str(row["device"]), []).append(row)
    return {
        device: (
            own[-1]["energy_joules"] - own[0]["energy_joules"],
            integral([(row["unix"], row["power_watts"]) for row in own]),
        )
        for device, own in sorted(of_each.items())
        if len(own) > 1
    }


def total(steps: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, tuple[float, float]]:
    """The same over several steps."""
    sums: dict[str, tuple[float, float]] = {}
    for device, (counter, power) in (pair for step in steps for pair in step.items()):
        before = sums.get(device, (0.0, 0.0))
        sums[device] = before[0] + counter, before[1] + power
    return sums


def sentence(device: str, counter: float, power: float) -> str:
    share = f"{100 * (counter / power - 1):+.1f} %" if power > 0 else "which cannot be compared"
    return f"{device}: its energy counter says {counter:.0f} J, its power over time {power:.0f} J ({share})"
