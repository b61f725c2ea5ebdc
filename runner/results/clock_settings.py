"""A GPU's clocks: what they and its limits are set to, in words, from its entry in run.json; and why it holds them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_TEXT = 100

# The bits of NVML's clocks-event reasons (nvml.h), each with the one name that we give it.
# Idle clocks, and clocks that somebody has set, are left out: they take no speed away that the work asked for.
POWER_CAP = "power cap"
REASONS = {
    0x4: POWER_CAP,
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}

# Any of them: the clock is below what the GPU could run at.
HELD_BACK = sum(REASONS)

# A GPU at its power limit does its work. One that slows down for heat, or on its power supply's order, is throttled.
THROTTLED = HELD_BACK & ~0x4


def state(entry: Mapping[str, Any]) -> str:
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


def settings(entry: Mapping[str, Any]) -> str:
    """A GPU's clocks, power limit, ECC, persistence mode and VBIOS, as far as its run recorded them."""
    parts = [f"clocks {state(entry)}"]
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


def names(bits: int) -> list[str]:
    """The reasons whose bits are set."""
    return [name for bit, name in REASONS.items() if bits & bit]
