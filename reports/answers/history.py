"""Which step times moved between runs, and which recorded facts changed before.

A cell's runs, in the order of time, form states: runs between which no recorded fact changed. The repeats of a state
count together. Each state is compared with the state before it, and the newest run with the earlier runs of its state.
Look first at a number that moved while no recorded fact changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from reports.answers import export
from reports.answers.contrast import MARGIN, METHOD, Contrast, Side, contrasts, differences
from reports.data.model import MeasuredCell, Tables
from reports.text import listing, plural


@dataclass(frozen=True)
class History:
    """The changes of state of each cell that several runs measured, and the number of cells that only one run measured."""

    runs: tuple[str, ...]  # oldest first
    rows: tuple[Contrast, ...]
    once: int

    @property
    def moved(self) -> tuple[Contrast, ...]:
        return tuple(row for row in self.rows if row.verdict == "real")

    @property
    def listed(self) -> tuple[Contrast, ...]:
        """The rows that moved, and those where the data cannot tell."""
        return tuple(row for row in self.rows if row.verdict != "noise")

    @property
    def exit_code(self) -> int:
        """0: nothing moved. 1: something moved. 2: the data cannot tell for some row, or there is no row."""
        if self.moved:
            return 1
        return 2 if not self.rows or any(row.verdict == "cannot tell" for row in self.rows) else 0

    @property
    def summary(self) -> str:
        """One sentence that counts the verdicts."""
        if not self.rows:
            return "No cell was measured by more than one of these runs."
        unsure = sum(row.verdict == "cannot tell" for row in self.rows)
        parts = [
            (len(self.moved), "moved"),
            (len(self.rows) - len(self.moved) - unsure, "noise"),
            (unsure, "undecided"),
        ]
        counts = listing([f"{count} {word}" for count, word in parts if count])
        return f"{plural(len(self.rows), 'comparison')} over {plural(len(self.runs), 'run')}: {counts}."


def in_time(tables: Tables) -> dict[str, int]:
    """Run -> its place among the runs, oldest first."""
    runs = sorted(tables.runs, key=lambda run: (str(run.manifest["created"]), run.run_id))
    return {run.run_id: at for at, run in enumerate(runs)}


def history(tables: Tables, margin: float = MARGIN) -> History:
    """What moved over the runs of `tables`."""
    order = in_time(tables)
    measured: dict[tuple[object, ...], list[MeasuredCell]] = {}
    for cell in tables.cells:
        if not cell.unranked:
            measured.setdefault((cell.image, cell.framework, cell.mode, cell.uuid, cell.key), []).append(cell)
    again = [sorted(cells, key=lambda cell: order[cell.run_id]) for cells in measured.values() if len(cells) > 1]
    pairs = [pair for cells in again for pair in _pairs(states(cells))]
    return History(tuple(order), contrasts(pairs, margin), len(measured) - len(again))


def states(cells: Sequence[MeasuredCell]) -> list[list[MeasuredCell]]:
    """The cells of consecutive runs between which no recorded fact changed, oldest first."""
    states = [[cells[0]]]
    for before, after in pairwise(cells):
        if differences(Side((before,)), Side((after,))):
            states.append([])
        states[-1].append(after)
    return states


def _pairs(states: Sequence[Sequence[MeasuredCell]]) -> Iterable[tuple[Side, Side]]:
    for before, after in pairwise(states):
        yield Side(tuple(before)), Side(tuple(after))
    last = states[-1]
    if len(last) > 1:
        yield Side(tuple(last[:-1])), Side((last[-1],))


COLUMNS = (
    *export.CELL,
    export.Column("from", lambda row: row.before.cells[-1].run_id, narrows=True),
    export.Column("to", lambda row: row.after.cells[0].run_id, narrows=True),
    *export.contrast_columns("before", "after"),
    export.Column("what changed", lambda row: row.changed),
)


def table(rows: Sequence[Contrast]) -> export.Table:
    """Rows of a history as people read them."""
    return export.table(COLUMNS, rows)


def records(history: History) -> list[dict[str, Any]]:
    """A flat record for each row."""
    return [export.contrast(row) for row in history.rows]


def document(history: History) -> Mapping[str, Any]:
    """The whole history as JSON."""
    return {"runs": history.runs, "summary": history.summary, "rows": records(history), "measured_once": history.once}


def markdown(history: History, rows: Sequence[Contrast]) -> str:
    """The summary, and a table of the given rows."""
    parts = [f"**{export.escaped(history.summary)}**", *([export.markdown(table(rows)), METHOD] if rows else [])]
    return "\n\n".join(parts) + "\n"
