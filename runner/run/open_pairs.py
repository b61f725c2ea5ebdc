"""What the repeats of a run leave open while it goes on: the pairs whose order is not settled, and the repeats far from their others.

The rule is that of the report: of the cells that are compared each is asked whether it is slower than the fastest one, within the blocks
of the run, and all these questions together err in 5 %. A pair is settled when one is slower, or the interval of their ratio lies inside
the margin.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from runner.plan.plan import Cell
from runner.results import statistics, store
from runner.results.blocks import Blocks, InBlock
from runner.results.cells import MOST_NOISE, StoredCell, stored_cells
from runner.results.rows import by_repeat, rows_of
from runner.results.statistics import ALPHA, Difference
from runner.results.student import questions, student_quantile
from runner.run.budget import MOST_REPEATS, OpenPair

# The logarithm of the smallest ratio that matters: 5 %, as `runner compare` has it.
_MARGIN = math.log(1.05)

# A pair that has had further repeats counts as settled only where the chance of a false claim is this. Who looks after each repeat, and
# stops at the first that tells, errs more often: in 14 % of simulated half hours with two groups of three equal cells, and so in 9 %.
_SURE = 0.02

# The standard deviation of the level that a session's repeats share.
_SESSION = max(statistics.SESSION_DEVIATION.values())

# A repeat is an outlier where it lies beyond the margin, and so many times as far from its cell's others as repeats of the run lie from
# theirs in the median. Of normal noise 1 repeat in 1 000 does.
_FAR = 5.0

Name = TypeVar("Name", bound=Hashable)
Logs = Mapping[Name, Sequence[InBlock]]


class OpenPairs:
    """Reads what a run has stored. It is a runner.run.budget.Unsettled."""

    def __init__(self, run: store.RunStore, cells: Sequence[Cell], planned: int) -> None:
        """`cells` are those of the plan, the most telling first, and `planned` the repeats of each."""
        self._run, self._planned = run, planned
        self._cells = tuple(cells)
        self._read_before = store.Kept()
        # The repeats that had ended when the columns were made.
        self._ended: Collection[tuple[str, int]] = ()
        self._made: Sequence[Logs[Cell]] = ()

    def __call__(self) -> Sequence[OpenPair]:
        return [OpenPair(*pair) for pair in open_pairs(self._columns(), self._planned)]

    def outliers(self) -> Sequence[Cell]:
        return outliers([logs for column in self._columns() for logs in column.items()])

    def _columns(self) -> Sequence[Logs[Cell]]:
        """The cells that are compared with one another, with their repeats. A cell that would not be ranked is left out."""
        try:
            if (ended := set(self._run.finished())) != self._ended:
                self._ended, self._made = ended, self._read()
        except store.StoreError:
            # The end of the run says it. It must not end the measurement.
            return ()
        return self._made

    def _read(self) -> Sequence[Logs[Cell]]:
        folders, manifest = [self._run.folder], self._run.manifest()
        rows = store.read(folders, "cells", self._read_before)
        samples = store.read(folders, "samples", self._read_before, rows)
        before = {(entry["cell_id"], entry["repeat"]) for entry in manifest.get("reused") or ()}
        stored = [cell for cell, _ in stored_cells([manifest], rows_of(rows), by_repeat(samples))]
        by_id = {cell.cell_id: cell for cell in stored if _is_ranked(cell)}
        columns: dict[object, dict[Cell, Sequence[InBlock]]] = {}
        for cell in self._cells:
            if (measured := by_id.get(cell.id)) and len(logs := _in_blocks(measured, before)) > 1:
                columns.setdefault(measured.key, {})[cell] = logs
        return list(columns.values())


def _is_ranked(cell: StoredCell) -> bool:
    enough = cell.step is not None and cell.step.windows >= statistics.fewest_windows()
    return cell.status == "ok" and cell.parity_passed is True and enough and (cell.noise or 0.0) <= MOST_NOISE


def _in_blocks(cell: StoredCell, before: set[tuple[str, int]]) -> Sequence[InBlock]:
    """The repeats of a cell. Those before the run was resumed are of another session."""
    logs = []
    for repeat in cell.repeats:
        session = cell.key.device_model, (cell.cell_id, repeat.number) in before
        began = repeat.row.get("started_unix")
        if repeat.log_median is not None:
            when = math.nan if began is None else float(began)
            logs.append(InBlock((session, repeat.number), repeat.log_median, session, when))
    return logs


class _Asked(NamedTuple):
    """A cell beside the fastest one: the difference of their log levels, and of the pair the fewer repeats."""

    apart: Difference
    within: bool  # blocks
    repeats: int
    # The same, if both had been measured at one time, as further repeats are.
    together: Difference

    def settled(self, among: int, chance: float) -> str | None:
        """slower: it takes longer than the fastest. same: their ratio lies inside the margin. Else None. It is one of so many cells."""
        value, error, freedom = self.apart.value, self.apart.error, self.apart.freedom
        asked = questions(among, freedom, chance) if self.within else among * (among - 1) / 2
        reach = student_quantile(1 - chance / asked / 2, freedom) * error
        return "slower" if value > reach else "same" if abs(value) + reach < _MARGIN else None

    def more(self, among: int) -> int | None:
        """The fewest further repeats of each that would settle it, if they scatter as those before."""
        for more in range(1, MOST_REPEATS):
            times = 1 + more / self.repeats
            value, error, freedom = self.together.value, self.together.error, self.together.freedom
            apart = Difference(value, error / math.sqrt(times), freedom * times)
            if self._replace(apart=apart).settled(among, _SURE):
                return more
        return None


def open_pairs(columns: Sequence[Logs[Name]], planned: int) -> list[tuple[Name, Name, int | None]]:
    """(the fastest, another one, how many further repeats of each would settle it) of the pairs that are open.

    First the nearest rival of every column, then the second nearest. `planned`: how many repeats each cell was to have.
    """
    blocks = Blocks({name: logs for column in columns for name, logs in column.items()})
    ranked: list[tuple[int, tuple[Name, Name, int | None]]] = []
    for column in columns:
        some = next(iter(column))
        fastest, *others = sorted(column, key=lambda name: _asked(name, some, column, blocks).apart.value)
        asked = [_asked(name, fastest, column, blocks) for name in others]
        chances = [ALPHA if one.repeats <= planned else _SURE for one in asked]

        def are(verdict: str | None, left: set[int]) -> set[int]:
            return {at for at in left if asked[at].settled(len(left) + 1, chances[at]) == verdict}  # noqa: B023

        left = set(range(len(asked)))
        # The slowest is told first: those that are not slower are asked among fewer (Newman and Keuls).
        while slower := are("slower", left):
            left -= slower
        for place, at in enumerate(sorted(are(None, left))):
            ranked.append((place, (fastest, others[at], asked[at].more(len(left) + 1))))
    return [pair for _, pair in sorted(ranked, key=lambda one: one[0])]


def _asked(name: Name, fastest: Name, column: Logs[Name], blocks: Blocks) -> _Asked:
    """Within blocks, or where none join the two, by how the repeats of each scatter and what the machine did between them."""
    sides = [np.array([one.log for one in column[side]]) for side in (name, fastest)]
    repeats = min(map(len, sides))
    if within := blocks.difference(name, fastest):
        return _Asked(within, True, repeats, within)
    parts = [float(np.var(side, ddof=1)) / len(side) for side in sides]
    spread = sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
    value, square = float(np.mean(sides[0]) - np.mean(sides[1])), sum(parts)
    together = Difference(value, math.sqrt(square), square**2 / spread if spread else 1.0)
    joined = {one.block for one in column[name]} & {one.block for one in column[fastest]}
    if joined or not spread:
        return _Asked(together, False, repeats, together)
    square += 2 * _SESSION**2
    return _Asked(Difference(value, math.sqrt(square), square**2 / spread), False, repeats, together)


def outliers(cells: Sequence[tuple[Name, Sequence[InBlock]]]) -> list[Name]:
    """The cells of which one repeat lies far from their median, and no other repeat does."""
    apart = {}
    for name, repeats in cells:
        logs = np.array([repeat.log for repeat in repeats])
        if len(logs) > 2:
            # Without the nearest, which mostly is the median itself.
            apart[name] = sorted(np.abs(logs - np.median(logs)))[1:]
    far = max(_MARGIN, _FAR * float(np.median([one for of_cell in apart.values() for one in of_cell] or [0.0])))
    return [name for name, of_cell in apart.items() if of_cell[-2] <= far < of_cell[-1]]
