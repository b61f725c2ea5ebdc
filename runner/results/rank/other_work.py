"""Other work beside a cell of a CPU: how many CPUs it kept busy while the steady windows ran. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from runner.results.cells import StoredCell, middle

# Of the CPUs that the cell had. The runner, an engine and a system at rest take less than half of this on a machine of two CPUs.
MOST = 0.1


@dataclass(frozen=True, order=True)
class OtherWork:
    """How many CPUs it kept busy, in the median of a cell's repeats, and how many CPUs the cell had."""

    cpus: float
    of_the_cell: int

    def __str__(self) -> str:
        return f"other work kept {self.cpus:.2g} CPUs busy beside it, and it had {self.of_the_cell}"


def of_cell(cell: StoredCell) -> OtherWork | None:
    """None where it was less than MOST, where it was not recorded, and for a GPU: other cells may run beside its cell."""
    others = middle((repeat.row for repeat in cell.measured), "other_cpus") if cell.key.device_kind == "cpu" else None
    host = cell.environment.get("host")
    own = host.get("cpu_count") if isinstance(host, dict) else None
    if others is None or not isinstance(own, int) or own < 1 or others <= MOST * own:
        return None
    return OtherWork(others, own)
