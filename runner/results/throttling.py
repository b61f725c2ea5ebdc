"""Why a GPU holds its clock back: the bits of NVML's clocks-event reasons (nvml.h), each with the one name that we give it."""

from __future__ import annotations

# Idle clocks, and clocks that somebody has set, are left out: they take no speed away that the work asked for.
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}

# Any of them: the clock is below what the GPU could run at.
HELD_BACK = sum(REASONS)

# A GPU at its power limit does its work. One that slows down for heat, or on its power supply's order, is throttled.
THROTTLED = HELD_BACK & ~0x4


def names(bits: int) -> list[str]:
    """The reasons whose bits are set."""
    return [name for bit, name in REASONS.items() if bits & bit]
