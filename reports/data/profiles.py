"""The parts of a step's time, as the framework's own profiler recorded them: from stored rows to a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from reports.data.model import Group, MeasuredCell, Operation, Profile
from runner.results.rows import by_repeat, chosen, floats, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 15  # operations in a table; the rest are in the store


def profiles(stored: pa.Table) -> dict[tuple[str, str], Profile]:
    """(run id, cell id) -> the profile of its first repeat that has one. `stored` is the store's table `profile`."""
    measured = chosen(stored, (floats(stored, "steps") > 0) & (floats(stored, "seconds") > 0))
    first: dict[tuple[str, str], Profile] = {}
    for (run, cell, _), part in sorted(by_repeat(measured).items(), key=itemgetter(0)):
        if (run, cell) in first:
            continue
        rows = rows_of(part)
        steps, whole = int(rows[0]["steps"]), sum(row["seconds"] for row in rows)
        operations = tuple(
            Operation(
                str(row["name"]), str(row["on"]), row["calls"] / steps, row["seconds"] / steps, row["seconds"] / whole
            )
            for row in rows
        )
        first[run, cell] = Profile(operations, steps, float(rows[0]["step_seconds"]), whole / steps)
    return first


@dataclass(frozen=True)
class Shown:
    """A cell's profile cut for the page: the longest operations, and what share of the time the others took."""

    cell: MeasuredCell
    profile: Profile
    operations: tuple[Operation, ...]
    others: float


def shown(group: Group, stored: Mapping[tuple[str, str], Profile]) -> tuple[Shown, ...]:
    """The profiles of a group's cells that ended well and have one."""
    profiles_ = []
    for cell in group.cells:
        profile = stored.get((cell.run_id, cell.cell_id))
        if profile and cell.status == "ok":
            ordered = sorted(profile.operations, key=lambda operation: operation.share, reverse=True)
            others = sum(operation.share for operation in ordered[SHOWN:])
            profiles_.append(Shown(cell, profile, tuple(ordered[:SHOWN]), others))
    return tuple(profiles_)
