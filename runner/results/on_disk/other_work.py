"""Other work beside a cell of a CPU, of its stored rows: how many CPUs it kept busy while the steady windows ran. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

# Of the CPUs that the cell had. The runner and a quiet machine of two CPUs took 0.00 to 0.03 CPUs in 13 cells.
MOST = 0.1


@dataclass(frozen=True, order=True)
class OtherWork:
    """How many CPUs it kept busy, in the median of a cell's repeats, and how many CPUs the cell had."""

    cpus: float
    of_the_cell: int

    def __str__(self) -> str:
        return f"other work kept {self.cpus:.2g} CPUs busy beside it, and it had {self.of_the_cell}"


def of_rows(rows: Iterable[Mapping[str, Any]], device_kind: str, environment: Mapping[str, Any]) -> OtherWork | None:
    """None where it was at most MOST, where it was not recorded, and for a GPU: other cells may run beside its cell."""
    taken = [row["other_cpus"] for row in rows if row.get("other_cpus") is not None] if device_kind == "cpu" else []
    own = own_cpus(environment)
    if not taken or own is None or median(taken) <= MOST * own:
        return None
    return OtherWork(median(taken), own)


def own_cpus(environment: Mapping[str, Any]) -> int | None:
    """How many CPUs a cell had, of its environment event."""
    host = environment.get("host")
    own = host.get("cpu_count") if isinstance(host, dict) else None
    return own if isinstance(own, int) and own >= 1 else None
