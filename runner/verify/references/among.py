"""A cell among the machines of an index of references: where it stands, and how far they differ. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from reports.wording import apart
from runner.results.statistics import Array, timings
from runner.text import plural
from runner.verify.causes import per_cent
from runner.verify.outliers import known_spread
from runner.verify.references.saved import SavedCell

# From so many machines on, how far they differ is taken as known. Below, it is assumed as without an index.
FEWEST_KNOWN = 10


@dataclass(frozen=True)
class AmongMachines:
    """A cell beside the machines of its model. Ratio: its step time over their median. Spread: None where too few show it."""

    device_model: str
    machines: int
    ratio: float
    slower_machines: int
    spread: float | None

    def __str__(self) -> str:
        differ = (
            f"machines of this model differ by {per_cent(self.spread, 2)}, measured on these"
            if self.spread is not None
            else f"how far machines differ is assumed: {FEWEST_KNOWN} would show it"
        )
        count = plural(self.machines, "machine")
        where = f"{apart(self.ratio)} as the median of {count}, of which {self.slower_machines} are slower"
        return f"a step on your {self.device_model} {where}; {differ}"


def machine_logs(cell: SavedCell) -> list[float]:
    """The mean log step time of each machine: the sessions of a cell of an index."""
    return [fmean(map(_log, repeats)) for repeats in cell.sessions().values()]


def among_machines(device_model: str, repeats: Sequence[Array], cell: SavedCell) -> AmongMachines:
    """The place of a cell that was measured in these repeats."""
    own, logs = fmean(map(_log, repeats)), machine_logs(cell)
    spread = float(known_spread(logs)) if len(logs) >= FEWEST_KNOWN else None
    return AmongMachines(device_model, len(logs), math.exp(own - median(logs)), sum(log > own for log in logs), spread)


def _log(repeat: Array) -> float:
    return math.log(timings(repeat).level)
