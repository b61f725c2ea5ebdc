"""Cells that no longer work: measured by an earlier run, and failed in each run that tried them since."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from reports.answers import export
from reports.answers.sessions import same
from reports.data.model import MeasuredCell, Tables
from runner.results.on_disk.roles import NamedCell
from runner.text import visible


class BrokenRecord(NamedCell):
    """A cell that fails since the run `b_runs`."""

    b_runs: str
    verdict: Literal["fails since"]
    reason: str


@dataclass(frozen=True)
class Broken:
    """A cell that fails since an earlier run measured it."""

    cell: MeasuredCell  # as the newest run has it
    since: str  # the first run in which it failed

    @property
    def line(self) -> str:
        names = [self.cell.name, self.cell.key.workload, self.cell.key.device, self.cell.key.precision]
        shown = ", ".join(visible(name, 80) for name in names)
        return f"{shown}: tried and failed since {visible(self.since, 80)}: {visible(self.cell.reason, 200)}"

    @property
    def record(self) -> BrokenRecord:
        """The fields of a flat record that it has."""
        return {
            **export.of_cell(self.cell),
            "b_runs": self.since,
            "verdict": "fails since",
            "reason": self.cell.reason,
        }


def broken(tables: Tables) -> tuple[Broken, ...]:
    """Every such cell. A run that did not try a cell says nothing of it."""
    runs: dict[tuple[object, ...], list[MeasuredCell]] = {}
    for cell in sorted(tables.cells, key=lambda cell: tables.order[cell.run_id]):
        if cell.status in ("ok", "failed"):
            runs.setdefault(same(cell), []).append(cell)
    found = []
    for cells in runs.values():
        failed = list(takewhile(lambda cell: cell.status == "failed" and not cell.ended_well, reversed(cells)))
        if failed and any(cell.comparable for cell in cells):
            found.append(Broken(failed[0], failed[-1].run_id))
    return tuple(found)
