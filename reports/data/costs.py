"""The costs of a cell besides its step time: of tokens, memory, energy, heat, and the wait for data. A new cost is one record here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench import rules
from reports.wording import duration, number, percent, size


@dataclass(frozen=True)
class Cost:
    """One cost: its name in a cell's `costs`, the head of its column, and how its value is written."""

    name: str  # the store's column, where the bench or the telemetry records it
    head: str
    unit: str
    written: Callable[[float | None], str]
    note: str = ""


_OF_THE_DEVICE = "Energy is of the device, over the steady windows."

_USED = "The driver counts its own part too, and other processes'; not every framework counts its own."
_HOST_BOUND = (
    f"A cell is host-bound where kernels ran in less than {percent(rules.HOST_BOUND, 2)} of a step's time: a GPU twice as fast would "
    "save less than a quarter of it."
)
WAITING = "data_waiting_share"  # computed from a metric: the store has no such column
# They are computed, too (reports.data.operators).
OF_DATASHEET, OF_OWN_PRODUCT = "of_datasheet", "of_own_product"
_MODEL = (
    "FLOP utilisation is the network's own arithmetic (attention counted whole) as a share of the datasheet's peak at this precision, "
    "and of the best product of matrices that the same run measured on the device."
)
# Of networks that compute token by token: from metrics (reports.data.curves), and computed.
FIRST_TOKEN, BETWEEN, BETWEEN_99 = "first_token_seconds", "between_tokens_seconds", "between_tokens_99_seconds"
FLOOR, FLOOR_MEASURED = "floor_seconds", "floor_measured_seconds"
_TOKENS = (
    "The first token comes after the whole prompt. Each token comes to the host, and the time between two is a step's. A memory-bound step "
    "takes the bytes of its parameters and its cache, each read once, divided by the bandwidth of the memory: the datasheet's, and the "
    "best that the same run measured on the device, in additions and the like. These write as well, and reading alone may be faster."
)
OF_TOKENS = (
    Cost(FIRST_TOKEN, "First token", "median", duration, _TOKENS),
    Cost(BETWEEN, "Between tokens", "median", duration),
    Cost(BETWEEN_99, "Between tokens", "99th percentile", duration),
    Cost(FLOOR, "Memory-bound step", "bandwidth of the datasheet", duration),
    Cost(FLOOR_MEASURED, "Memory-bound step", "best measured bandwidth", duration),
)
COSTS = (
    *OF_TOKENS,
    Cost("host_peak_bytes", "Host memory", "peak", size),
    Cost("device_peak_bytes", "Device memory", "peak", size),
    Cost("device_used_bytes", "Device memory in use", "peak, as the driver tells it", size, _USED),
    Cost("joules_per_item", "Energy", "joules an item", number, _OF_THE_DEVICE),
    Cost("mean_power_watts", "Power", "watts, mean", number),
    Cost("max_temperature_celsius", "Temperature", "°C, highest", number),
    Cost("kernel_share", "Kernels ran", "share of a step", percent, _HOST_BOUND),
    Cost(OF_DATASHEET, "FLOP utilisation", "of the datasheet", percent, _MODEL),
    Cost(OF_OWN_PRODUCT, "FLOP utilisation", "of the best product", percent),
    Cost(WAITING, "Waiting for data", "share of the time", percent),
)
