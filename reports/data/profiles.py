"""Where the time of a step goes, as the framework's own profiler recorded it: from stored rows to a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from reports.data.model import Group, MeasuredCell, Operation, Profile

SHOWN = 15  # operations in a table; the rest are in the store


def profiles(frame: pd.DataFrame) -> dict[tuple[str, str], Profile]:
    """(run id, cell id) -> the profile of its first repeat that has one. `frame` is the store's table `profile`."""
    frame = frame[(frame["steps"] > 0) & (frame["seconds"] > 0)]
    stored: dict[tuple[str, str], Profile] = {}
    for (run, cell, _), part in frame.groupby(["run_id", "cell_id", "repeat"], sort=True):
        if (str(run), str(cell)) not in stored:
            stored[str(run), str(cell)] = _profile(part)
    return stored


def _profile(part: pd.DataFrame) -> Profile:
    steps = int(part["steps"].iloc[0])
    whole = float(part["seconds"].sum())
    operations = tuple(
        Operation(str(name), str(on), calls / steps, seconds / steps, seconds / whole)
        for name, on, calls, seconds in zip(part["name"], part["on"], part["calls"], part["seconds"], strict=True)
    )
    return Profile(operations, steps, float(part["step_seconds"].iloc[0]), whole / steps)


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
