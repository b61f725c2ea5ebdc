"""The pairs whose order a run leaves open while it goes on, and the repeats far from their others.

The rule is that of the report (runner.results.rank.ranking). A pair is settled when one is slower, or both are the same within the margin.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from runner.plan.plan import Cell
from runner.results import statistics, store
from runner.results.cells import MOST_NOISE, Key, StoredCell, stored_cells
from runner.results.rank.blocks import Blocks, InBlock
from runner.results.rank.ranking import Contender, Field, among_tables, bad_repeats, in_block
from runner.results.rows import by_repeat, rows_of
from runner.run.budget import MOST_REPEATS, OpenPair

# A pair that has had further repeats counts as settled only where the chance of a false claim is this. Who looks after each repeat, and
# stops at the first that tells, errs more often: in 14 % of simulated half hours with two groups of three equal cells, and so in 9 %.
_SURE = 0.02

Name = TypeVar("Name", bound=Hashable)
Logs = Mapping[Name, Sequence[InBlock]]


class OpenPairs:
    """Looks at what a run has stored, and at what is admitted meanwhile. It is a runner.run.budget.Unsettled."""

    def __init__(self, run: store.RunStore, cells: Sequence[Cell], planned: int) -> None:
        """`cells` are those of the plan, the most telling first, and `planned` the repeats of each. Raises StoreError."""
        self._run, self._planned = run, planned
        self._cells = tuple(cells)
        # A run that is gone on with has tables. They are not written again after each repeat.
        folders = [run.folder] if run.finished() else []
        self._before = store.tables_of(folders, ("cells", "samples"))
        # The repeats that were admitted when the columns were made.
        self._admitted: int | None = None
        self._made: Mapping[str, Sequence[Logs[Cell]]] = {}
        self._fastest: Sequence[Sequence[Cell]] = ()

    def __call__(self) -> Sequence[OpenPair]:
        return [
            OpenPair(*pair)
            for kind, columns in self._columns().items()
            for pair in open_pairs(columns, self._planned, kind)
        ]

    def fastest(self) -> Sequence[Sequence[Cell]]:
        self._columns()
        return self._fastest

    def outliers(self) -> Sequence[Cell]:
        of_kinds = self._columns().values()
        return list(
            bad_repeats({name: logs for columns in of_kinds for column in columns for name, logs in column.items()})
        )

    def _columns(self) -> Mapping[str, Sequence[Logs[Cell]]]:
        """For each kind of device the cells that are compared with one another, with their repeats. A cell whose own
        figure would not be ranked is left out; its proof at fp32 may be in another run."""
        if (admitted := len(self._run.admitted)) != self._admitted:
            self._admitted, self._made = admitted, self._read()
        return self._made

    def _read(self) -> Mapping[str, Sequence[Logs[Cell]]]:
        import pyarrow as pa

        manifest = self._run.manifest()
        rows, samples = (pa.concat_tables([before, self._run.rows(table)]) for table, before in self._before.items())
        before = {(entry["cell_id"], entry["repeat"]) for entry in manifest.get("reused") or ()}
        stored = [cell for cell, _ in stored_cells([manifest], rows_of(rows), by_repeat(samples))]
        by_id = {cell.cell_id: cell for cell in stored if _is_ranked(cell)}
        columns: dict[Key, dict[Cell, Sequence[InBlock]]] = {}
        for cell in self._cells:
            if (measured := by_id.get(cell.id)) and (logs := _in_blocks(measured, before)):
                columns.setdefault(measured.key, {})[cell] = logs
        self._fastest = [
            sorted(column, key=lambda cell: float(np.mean([one.log for one in column[cell]])))
            for column in columns.values()
        ]
        kinds: dict[str, list[Logs[Cell]]] = {}
        for key, column in columns.items():
            # One repeat decides nothing about the others.
            if repeated := {cell: logs for cell, logs in column.items() if len(logs) > 1}:
                kinds.setdefault(key.device_kind, []).append(repeated)
        return kinds


def _is_ranked(cell: StoredCell) -> bool:
    enough = cell.step is not None and cell.step.windows >= statistics.fewest_windows()
    return cell.ended_well and cell.parity_passed is True and enough and (cell.noise or 0.0) <= MOST_NOISE


def _in_blocks(cell: StoredCell, before: set[tuple[str, int]]) -> Sequence[InBlock]:
    """The repeats of a cell. Those before the run was resumed are of another session."""
    return [
        in_block(cell, at, (cell.key.device_model, (cell.cell_id, repeat.number) in before))
        for at, repeat in enumerate(cell.measured)
    ]


def open_pairs(
    columns: Sequence[Logs[Name]], planned: int, device_kind: str = "cpu"
) -> list[tuple[Name, Name, int | None]]:
    """(the fastest, another one, how many further repeats of each would settle it) of the pairs that are open.

    First the nearest rival of every column, then the second nearest. `planned`: how many repeats each cell was to have.
    """
    blocks = Blocks({name: logs for column in columns for name, logs in column.items()})
    ranked: list[tuple[int, tuple[Name, Name, int | None]]] = []
    fields = [
        Field({name: _contender(name, logs, blocks) for name, logs in column.items()}, blocks, device_kind)
        for column in columns
    ]
    for column, field in zip(columns, among_tables(fields), strict=True):
        first = next(name for name in column if name == field.first)
        left = [
            name
            for name in sorted(column, key=field.order.index)
            if name != first and not _settled(field, name, planned)
        ]
        ranked += [(place, (first, name, _more(field, name))) for place, name in enumerate(left)]
    return [pair for _, pair in sorted(ranked, key=lambda one: one[0])]


def _contender(name: Hashable, logs: Sequence[InBlock], blocks: Blocks) -> Contender:
    """A cell with the level that the report gives it. How its windows scatter is left to the report."""
    values, level = [one.log for one in logs], blocks.level(name)
    means = {
        session: float(np.mean([one.log for one in logs if one.session == session]))
        for session in dict.fromkeys(one.session for one in logs)
    }
    return Contender(float(np.mean(values)) if level is None else level, values, 0.0, frozenset(means), means)


def _settled(field: Field, name: Hashable, planned: int) -> bool:
    pair = field.places[name]
    looked_again = min(len(field.cells[one].logs) for one in (name, field.first)) > planned
    if pair.verdict == "slower" and looked_again:
        return pair.p is not None and pair.p < _SURE
    return pair.verdict != "open"


def _more(field: Field, name: Hashable) -> int | None:
    """The fewest further repeats of each that would settle it, if they scatter as those before."""
    have = min(len(field.cells[one].logs) for one in (name, field.first))
    count = field.repeats_to_tell(name, field.first)
    return None if count is None or count > MOST_REPEATS else count - have
