"""Telemetry in short: a cell's clock, and how long something held the clock back, over its steady windows. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from runner.results.clock_settings import REASONS
from runner.results.on_disk.observed import OF_TELEMETRY, Observed

Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=100)]

# The facts that have no place of their own.
_MEDIANS = tuple(name for name in OF_TELEMETRY if name not in ("sm_megahertz", "foreign_process_count"))

# Older names of the reasons, in references that were saved before each had one name.
_EARLIER_NAMES = {
    "power cap": "power",
    "software thermal slowdown": "heat",
    "hardware thermal slowdown": "heat",
}


class Telemetry(BaseModel):
    """The GPUs while a cell ran. None, or no entry: nothing was recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sm_megahertz: Annotated[float, Field(ge=0, lt=1e6)] | None = None  # median
    throttled: dict[Text, Share] = {}  # reason -> share of the time
    # Column of the table `telemetry` -> median: other clocks, heat, power. References saved before have none.
    medians: Annotated[dict[Text, Annotated[float, Field(ge=0, lt=1e9)]], Field(max_length=20)] = {}

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `medians` where there are none: references saved before keep their digests."""
        fields: dict[str, Any] = dump(self)
        return {name: value for name, value in fields.items() if value or name != "medians"}

    def share(self, reason: str) -> float:
        """The share of the time for which a reason held the clock back."""
        return self.throttled.get(reason) or self.throttled.get(_EARLIER_NAMES.get(reason, ""), 0.0)


def summarise(
    rows: Sequence[Mapping[str, Any]], spans: Sequence[tuple[float, float]], seen: Observed
) -> Telemetry | None:
    """The rows of the table `telemetry` of one repeat, inside the spans (begin, end in seconds) of its steady windows, and what else was
    `seen` of the machine meanwhile."""
    if not spans:
        return None
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    inside = [row for row in rows if row["device"] != "cpu" and begin <= row["seconds"] <= end]
    clocks = [row["sm_megahertz"] for row in inside if row.get("sm_megahertz") is not None]
    reasons = [int(row["throttle_reasons"]) for row in inside if row.get("throttle_reasons") is not None]
    medians = {name: value for name in _MEDIANS if isinstance(value := seen.get(name), float)}
    if not clocks and not reasons and not medians:
        return None
    counts = {name: sum(bool(bits & bit) for bits in reasons) for bit, name in REASONS.items()}
    shares = {name: count / len(reasons) for name, count in counts.items() if count}
    return Telemetry(sm_megahertz=statistics.median(clocks) if clocks else None, throttled=shares, medians=medians)
