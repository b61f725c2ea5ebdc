"""What telemetry says of a cell in short: its clock, and how long something held it back, over its steady windows. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=100)]

# NVML's reasons that take speed away (nvml.h, nvmlClocksEventReasons), as a person would name them.
REASONS = {0x04: "power", 0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}


class Telemetry(BaseModel):
    """What was seen of the GPUs while a cell ran. None and no entry: nothing was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sm_megahertz: Annotated[float, Field(ge=0, lt=1e6)] | None = None  # median
    throttled: dict[Text, Share] = {}  # reason -> share of the time


def summarise(rows: Sequence[Mapping[str, Any]], spans: Sequence[tuple[float, float]]) -> Telemetry | None:
    """The rows of the table `telemetry` of one repeat, inside the spans (begin, end in seconds) of its steady windows."""
    if not spans:
        return None
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    inside = [row for row in rows if row["device"] != "cpu" and begin <= row["seconds"] <= end]
    clocks = [row["sm_megahertz"] for row in inside if row.get("sm_megahertz") is not None]
    told = [int(row["throttle_reasons"]) for row in inside if row.get("throttle_reasons") is not None]
    shares: dict[str, float] = {}
    for name in dict.fromkeys(REASONS.values()):
        bits = sum(bit for bit, reason in REASONS.items() if reason == name)
        held = sum(bool(reasons & bits) for reasons in told)
        if held:
            shares[name] = held / len(told)
    if not clocks and not told:
        return None
    return Telemetry(sm_megahertz=statistics.median(clocks) if clocks else None, throttled=shares)
