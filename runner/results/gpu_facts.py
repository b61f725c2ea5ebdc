"""A GPU by its maker's figures: the limits of its datasheet, the reasons for which its clocks are held back, and its settings in words."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The limits of a GPU by its vendor's datasheet.
#
# peaks.csv: TFLOP/s at boost clock without sparsity, tensor cores where there are some, fp16 with the faster of its two accumulators
# (GeForce halves the rate with fp32's), fp8 with fp32's; GB/s of the memory. `model` is a regular expression for NVML's name without
# "NVIDIA". The A40, the L40 and the H20 are from the tables of NVIDIA's datasheets as sellers print them, with a 64th of fp32 for fp64 of
# the first two. What NVIDIA prints with sparsity is halved, and what it prints of a rack or a board (GB200 and GB300 NVL72, HGX B300) is
# divided by its GPUs. Two boards are called GeForce RTX 3080: the larger one's figures stand, which neither exceeds. A GPU that is not in
# the file, and a part of a GPU (MIG), have no peak here: nothing is guessed.

_PATH = Path(__file__).with_name("peaks.csv")

# Partner boards and cool boards clock above the datasheet's boost: some 8 % on GeForce. A rate beyond this factor is refused.
ABOVE_PEAK = 1.1

# Winograd's F(4x4, 3x3), which cuDNN has, multiplies a quarter as often as the count of a 3x3 convolution says.
FEWER_IN_CONVOLUTION = 4.0


@dataclass(frozen=True)
class Datasheet:
    """One GPU: floating-point operations a second at one precision (None where there is no figure), and bytes a second."""

    flops: float | None
    bytes: float


def bare_model(model: str) -> str:
    """A GPU's name without its maker: drivers since 470 call an A100-SXM4-40GB NVIDIA A100-SXM4-40GB."""
    return model.removeprefix("NVIDIA ")


def datasheet(model: str, precision: str) -> Datasheet | None:
    """NVML's name of a GPU -> its datasheet; None if it is unknown."""
    name = bare_model(model)
    for row in _rows():
        if re.fullmatch(row["model"], name):
            # Mixed precision multiplies in its half type.
            teraflops = row.get(precision.removeprefix("amp-"))
            return Datasheet(float(teraflops) * 1e12 if teraflops else None, float(row["gb_per_second"]) * 1e9)
    return None


@functools.cache
def _rows() -> tuple[dict[str, str], ...]:
    with _PATH.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


# A GPU's clocks: what they and its limits are set to, in words, from its entry in run.json; and why it holds them back.

_MOST_TEXT = 100

# The bits of NVML's clocks-event reasons (nvml.h), each with the one name that we give it.
# Idle clocks, and clocks that somebody has set, are left out: they take no speed away that the work asked for.
POWER_CAP = "power cap"
CLOCK_REASONS = {
    0x4: POWER_CAP,
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}

# Any of them: the clock is below what the GPU could run at.
HELD_BACK = sum(CLOCK_REASONS)

# A GPU at its power limit does its work. One that slows down for heat, or on its power supply's order, is throttled.
THROTTLED = HELD_BACK & ~0x4


def clock_state(entry: Mapping[str, Any]) -> str:
    """The state of a GPU's clocks: floating or locked. NVML does not tell what others than the runner have locked."""
    locked, most, application = (
        _number(entry.get(name)) for name in ("locked_sm_megahertz", "max_sm_megahertz", "application_sm_megahertz")
    )
    if locked:
        return f"locked at {locked:.0f} MHz"
    at_most = f", at most {most:.0f} MHz" if most else ""
    if application and most and application < most:
        return f"application clock {application:.0f} MHz{at_most}"
    return f"float{at_most}"


def gpu_settings(entry: Mapping[str, Any]) -> str:
    """A GPU's clocks, power limit, ECC, persistence mode and VBIOS, as far as its run recorded them."""
    parts = [f"clocks {clock_state(entry)}"]
    limit, default = _number(entry.get("power_limit_watts")), _number(entry.get("default_power_limit_watts"))
    if limit:
        parts.append(f"power limit {limit:.0f} W" + (f", by default {default:.0f} W" if default else ""))
    for name, title in (("ecc", "ECC"), ("persistence", "persistence mode")):
        if isinstance(entry.get(name), bool):
            parts.append(f"{title} {'on' if entry[name] else 'off'}")
    for name, title in (("vbios", "VBIOS"), ("compute_mode", "compute mode")):
        if entry.get(name):
            parts.append(f"{title} {str(entry[name])[:_MOST_TEXT]}")
    return "; ".join(parts)


def _number(value: object) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain and 0 < value < 1e9 else None  # type: ignore[arg-type,operator]


def reasons_of(bits: int) -> list[str]:
    """The reasons whose bits are set."""
    return [name for bit, name in CLOCK_REASONS.items() if bits & bit]
