"""What a cell takes besides time: memory, energy, heat, and the wait for data. A new cost is one record here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reports.text import number, percent, size


@dataclass(frozen=True)
class Cost:
    """One cost: its name in a cell's `costs`, the head of its column, and how its value is written."""

    name: str  # the store's column, where the bench or the telemetry records it
    head: str
    unit: str
    written: Callable[[float | None], str]
    note: str = ""


_OF_THE_DEVICE = "Energy is of the device, over the steady windows."

WAITING = "data_waiting_share"  # computed from a metric: the store has no such column
COSTS = (
    Cost("host_peak_bytes", "Host memory", "peak", size),
    Cost("device_peak_bytes", "Device memory", "peak", size),
    Cost("joules_per_item", "Energy", "joules an item", number, _OF_THE_DEVICE),
    Cost("mean_power_watts", "Power", "watts, mean", number),
    Cost("max_temperature_celsius", "Temperature", "°C, highest", number),
    Cost(WAITING, "Waiting for data", "share of the time", percent),
)
