"""Which step times moved between runs, and which recorded facts changed before.

A cell's runs, in the order of time, form states: runs between which no recorded fact changed. In each state a step is
looked for, the run since which the cell takes longer, or less time; and a drift, where a line fits better than a step.
Each state is compared with the state before it.
The unit is the run, with the step time that its report prints: the repeats of one run share what differs between runs. Look first
at a number that moved while no recorded fact changed.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from typing_extensions import TypedDict

from reports.answers import export, sessions
from reports.answers.change_point import FEWEST_RUNS, Broken, BrokenRecord, Change, broken, change, difference, odd_one
from reports.answers.contrast import (
    METHOD,
    Contrast,
    Side,
    differences,
    judged,
    observed_changes,
    own_versions,
    ratio_of,
)
from reports.data.model import MeasuredCell, Tables
from reports.wording import apart, duration, listing, number, plural
from runner.errors import ExitCode, one_code
from runner.results.rank.ranking import MARGIN
from runner.results.statistics import ALPHA, LEVEL, Array, Estimate
from runner.text import visible

MOST_NAMED = 6  # of the cells that a sentence names

HOW = f"{METHOD} A run counts as one measurement here, however many repeats it has."


@dataclass(frozen=True)
class Moved(Contrast):
    """A row of a history. A drift has its first run before, and since it the others; its ratio is of the line's ends."""

    kind: Literal["step", "drift"] = "step"
    level: float = LEVEL  # of the interval of its ratio
    odd: tuple[MeasuredCell, ...] = ()  # the runs apart from all others of their state, which do not count

    @property
    def drifts(self) -> bool:
        return self.kind == "drift" and self.real

    @property
    def when(self) -> str:
        return "from run to run" if self.drifts else f"since {visible(self.cell.run_id, 80)}"

    @property
    def change(self) -> str:
        if not self.drifts or self.ratio is None:
            return super().change
        return f"{apart(self.ratio.value)} over {_count(self)}"

    @property
    def words(self) -> str:
        return super().words.replace(self.verdict, "drifts", 1) if self.drifts else super().words

    @property
    def seconds(self) -> tuple[float, float]:
        """A step before and since: the geometric means of the runs, or the ends of the line."""
        if not self.drifts or self.ratio is None:
            return _level(self.before), _level(self.after)
        middle, half = _level(Side(self.before.cells + self.after.cells)), math.sqrt(self.ratio.value)
        return middle / half, middle * half


def _count(row: Contrast) -> str:
    return plural(len(row.before.cells) + len(row.after.cells), "run")


class MovedRecord(export.ContrastRecord):
    """`b_runs` are those since the change. Of a drift the seconds are those of the line's ends.

    The level is that of the ratio's interval: 0.9 where no change was reported, since two one-sided tests at 5 % say how large one may be.
    """

    kind: Literal["step", "drift"]
    level: float


class HistoryDocument(TypedDict):
    """The cells that several runs measured."""

    runs: tuple[str, ...]
    summary: str
    moved_together: str
    exit_code: int
    rows: list[MovedRecord]
    broken: list[BrokenRecord]
    measured_once: int
    not_compared: tuple[str, ...]


@dataclass(frozen=True)
class History:
    """The history of each cell that several runs measured, and the number of cells that only one run measured."""

    runs: tuple[str, ...]  # oldest first
    rows: tuple[Moved, ...]
    once: int
    unfit: tuple[
        str, ...
    ] = ()  # the cells that several runs measured, one of them too noisily or in too few windows to be compared
    together: str = ""  # a sentence about what moved nearly all cells, where something did
    again: tuple[Sequence[MeasuredCell], ...] = ()  # each cell that was measured more than once, oldest first
    broken: tuple[Broken, ...] = ()
    compared: tuple[Contrast, ...] = ()  # of two runs, which are too few for a history: the rows of `runner compare`
    changed_files: str = ""  # a sentence about the person's own networks that have another version in a later run

    @property
    def moved(self) -> tuple[Moved, ...]:
        """The rows that moved, if by more than the margin or perhaps by more."""
        return tuple(row for row in self.rows if row.real and row.matters is not False)

    @property
    def lines(self) -> tuple[str, ...]:
        """Each row in a line."""
        return tuple(map(_line, self.rows))

    @property
    def notes(self) -> tuple[str, ...]:
        """For a report: sentences on what moved between its runs, together and cell by cell."""
        lines = [_line(row) for row in self.moved if not self.together or row.when not in self.together]
        more = len(lines) - MOST_NAMED
        rest = [f"{more} more changed between the runs: `runner history`."] if more > 0 else []
        failed = [one.line for one in self.broken[:MOST_NAMED]]
        return tuple(filter(None, (self.together, *failed, *lines[:MOST_NAMED], *rest)))

    @property
    def moved_levels(self) -> tuple[tuple[Moved, tuple[float, float]], ...]:
        """The moved rows, each with its seconds a step before and since."""
        return tuple((row, row.seconds) for row in self.moved)

    @property
    def exit_code(self) -> int:
        """As that of compare. 0: nothing takes longer. 1: something does by more than the margin, or perhaps by more, or fails since.
        3: some row is open, or there is no row."""
        if self.broken or any(row.told_slower for row in (*self.rows, *self.compared)):
            return ExitCode.FOUND
        return one_code(failed=False, is_open=not self.rows or any(row.verdict == "open" for row in self.rows))

    @property
    def summary(self) -> str:
        """One sentence that counts the verdicts."""
        if len(self.runs) == 1:
            again = "Measure again with the same options, then run `runner history` once more."
            return f"There is one run, {visible(self.runs[0], 200)}. {again}"
        if not self.rows:
            return " ".join(
                filter(
                    None, (self._unfit or "No cell was measured by more than one of these runs.", self.changed_files)
                )
            )
        unsure = sum(row.verdict == "open" for row in self.rows)
        parts = [
            (len(self.moved), "changed"),
            (len(self.rows) - len(self.moved) - unsure, "did not"),
            (unsure, "open"),
        ]
        counts = listing([f"{count} {word}" for count, word in parts if count])
        failed = f" {plural(len(self.broken), 'cell')} that worked before failed since." if self.broken else ""
        odd = Counter(visible(cell.run_id, 80) for row in self.rows for cell in row.odd)
        runs = listing([f"{run} ({plural(rows, 'row')})" for run, rows in odd.items()])
        alone = f" Apart from all others, and not counted: {runs}." if odd else ""
        compared = f"{plural(len(self.rows), 'comparison')} over {plural(len(self.runs), 'run')}: {counts}."
        return " ".join(filter(None, (f"{compared}{alone}{failed}", self._unfit, self.changed_files)))

    @property
    def _unfit(self) -> str:
        """A sentence that names the cells without a row, though several runs measured them; empty without any."""
        more = [f"{len(self.unfit) - MOST_NAMED} more"] if len(self.unfit) > MOST_NAMED else []
        named = "; ".join([*(visible(name, 120) for name in self.unfit[:MOST_NAMED]), *more])
        return f"Measured by several runs, but too noisy or with too few windows to compare: {named}." if named else ""


def history(tables: Tables, margin: float = MARGIN) -> History:
    """The moves over the runs of `tables`."""
    measured, unfit = _measured(tables), _unfit(tables)
    again = [cells for cells in measured if len(cells) > 1]
    hours = _hours(tables)
    found = [pair for cells in again for pair in _rows(states(cells), margin, hours)]
    chances = [p for _, p in found]
    rows = (
        tuple(_with_odd(row) for row in judged([row for row, _ in found], chances) if isinstance(row, Moved))
        if found
        else ()
    )
    together, compared = _together(again, rows, margin, tables)
    once = len(measured) - len(again)
    changed = _changed_files(tables)
    return History(tuple(tables.order), rows, once, unfit, together, tuple(again), broken(tables), compared, changed)


def _changed_files(tables: Tables) -> str:
    """A sentence that names the runs in which the file of a person's own network is another one than in the run before that has it."""
    cells: dict[str, list[MeasuredCell]] = {run: [] for run in tables.order}
    for cell in tables.cells:
        cells[cell.run_id].append(cell)
    last: dict[str, set[str]] = {}
    said = []
    for run, measured in cells.items():
        now = own_versions(measured)
        said += [f"{name} in {visible(run, 80)}" for name in now if name in last and not last[name] & now[name]]
        last |= now
    shown = [*said[:MOST_NAMED], *([f"{len(said) - MOST_NAMED} more"] if len(said) > MOST_NAMED else [])]
    return (
        f"The file of an own network changed, and each version is a network of its own: {listing(shown)}."
        if said
        else ""
    )


def _hours(tables: Tables) -> Mapping[str, float]:
    """When each run began, in hours since 1970. A time that nobody can read is left out."""
    hours = {}
    for run in tables.runs:
        with contextlib.suppress(ValueError, OverflowError, OSError):
            hours[run.run_id] = datetime.fromisoformat(str(run.manifest["created"])).timestamp() / 3600
    return hours


def _unfit(tables: Tables) -> tuple[str, ...]:
    """The cells that several runs measured, of which at most one run's figure may be compared."""
    runs: dict[tuple[object, ...], list[MeasuredCell]] = {}
    for cell in tables.cells:
        if not cell.unsound:
            runs.setdefault(sessions.same(cell), []).append(cell)
    few = [cells for cells in runs.values() if len(cells) > 1 and sum(cell.comparable for cell in cells) < 2]
    return tuple(f"{cells[0].name}, {cells[0].key.workload}" for cells in few)


def _measured(tables: Tables) -> list[list[MeasuredCell]]:
    measured: dict[tuple[object, ...], list[MeasuredCell]] = {}
    for cell in tables.cells:
        if cell.comparable:
            measured.setdefault(sessions.same(cell), []).append(cell)
    return [sorted(cells, key=lambda cell: tables.order[cell.run_id]) for cells in measured.values()]


def _together(
    again: Sequence[Sequence[MeasuredCell]], rows: Sequence[Moved], margin: float, around: Tables
) -> tuple[str, tuple[Contrast, ...]]:
    """The common move of nearly all cells: of two runs by their common shift, of more since one run, or as a drift. Of two runs also the
    rows of `runner compare`, and the cells of them that moved by themselves."""
    if len({cell.run_id for cells in again for cell in cells}) == 2:
        pairs = [(Side((cells[0],)), Side((cells[-1],))) for cells in again if cells[0].run_id != cells[-1].run_id]
        compared, shift = sessions.two_runs(pairs, margin, around)
        alone = [f"{row.cell.name}, {row.cell.key.workload}: {row.words}." for row in compared if row.told_slower]
        said = " ".join([shift.said if shift else "", *alone[:MOST_NAMED]]).strip()
        return said, (*compared, *([shift.row] if shift else []))
    since = Counter((row.when, row.longer) for row in rows if row.real)
    (when, longer), count = since.most_common(1)[0] if since else (("", False), 0)
    if count < sessions.FEWEST_ROWS or count < sessions.NEARLY_ALL * len(again):
        return "", ()
    said = f"{count} of {len(again)} cells became {'slower' if longer else 'faster'} {when}. {sessions.SHARED}"
    return said, ()


def states(cells: Sequence[MeasuredCell]) -> list[list[MeasuredCell]]:
    """The cells of consecutive runs between which no recorded fact changed, oldest first."""
    states = [[cells[0]]]
    for before, after in pairwise(cells):
        if differences(Side((before,)), Side((after,))):
            states.append([])
        states[-1].append(after)
    return states


def _rows(
    states: Sequence[Sequence[MeasuredCell]], margin: float, hours: Mapping[str, float]
) -> Iterable[tuple[Moved, float | None]]:
    """A cell's rows before they are judged, each with the p that is not that of its ratio.

    One row for each two neighbouring states: the level after the last step of the one and that before the first of the
    other. One for the change within each state, but for those of the past with too few runs: nothing will ever tell them.
    """
    places = [odd_one(_levels(state)) for state in states]
    odd = [() if at is None else (state[at],) for state, at in zip(states, places, strict=True)]
    states = [[cell for cell in state if cell not in out] for state, out in zip(states, odd, strict=True)]
    changes = [
        change(_levels(state), [hours[cell.run_id] for cell in state if cell.run_id in hours])
        if len(state) >= FEWEST_RUNS
        else None
        for state in states
    ]
    for at, (before, after) in enumerate(pairwise(states)):
        between = _between(before[_start(changes[at]) :], after[: _start(changes[at + 1]) or None], margin)
        yield replace(between, odd=odd[at] + odd[at + 1]), None
    for state, found, out in zip(states, changes, odd, strict=True):
        if found is not None:
            row = _row(state[: found.index], state[found.index :], found.ratio, margin, found.kind)
            yield replace(row, level=found.level, odd=out), found.p
        elif state is states[-1] and len(state) > 1:
            note = f"{plural(len(state), 'run')} with the same recorded facts; {FEWEST_RUNS} or more are needed"
            value = math.exp(float(_levels(state[-1:])[0] - np.mean(_levels(state[:-1]))))
            yield _row(state[:-1], state[-1:], Estimate(value, None, None, 0, len(state), "none", note), margin), None


def _with_odd(row: Moved) -> Moved:
    """The row, whose reason names the runs that it leaves out, and what was seen of the machine in them."""
    left = []
    for cell in row.odd:
        seen = listing([str(fact) for fact in observed_changes(row.before, Side((cell,)))])
        took = duration(math.exp(sessions.level_of(cell)))
        left.append(
            f"{visible(cell.run_id, 80)} alone took {took} a step{f' ({seen})' if seen else ''}, and does not count"
        )
    return replace(row, reason="; ".join(filter(None, [row.reason, *left])))


def _start(found: Change | None) -> int:
    """The first run after a state's step; 0 where there is none."""
    return found.index if found is not None and found.kind == "step" and found.p < ALPHA else 0


def _levels(cells: Sequence[MeasuredCell]) -> Array:
    return np.array([sessions.level_of(cell) for cell in cells])


def _row(
    before: Sequence[MeasuredCell],
    after: Sequence[MeasuredCell],
    ratio: Estimate | None,
    margin: float,
    kind: Literal["step", "drift"] = "step",
) -> Moved:
    sides = Side(tuple(before)), Side(tuple(after))
    return Moved(*sides, ratio, None, "open", "", differences(*sides), margin=margin, kind=kind)


def _between(before: Sequence[MeasuredCell], after: Sequence[MeasuredCell], margin: float) -> Moved:
    """Runs of one state and of the next. Fewer than FEWEST_RUNS do not show how much runs differ: it is assumed."""
    if len(before) + len(after) >= FEWEST_RUNS:
        return _row(before, after, difference(_levels(before), _levels(after)), margin)
    row = _row(before, after, None, margin)
    return replace(row, ratio=sessions.beside_sessions(replace(row, ratio=ratio_of(row.before, row.after))).ratio)


def _level(side: Side) -> float:
    """Seconds a step of a side: the geometric mean of its runs."""
    return math.exp(float(np.mean(_levels(side.cells))))


def _line(row: Moved) -> str:
    """A row in one line."""
    cell = row.cell
    names = [cell.name, cell.key.workload, cell.key.device, cell.key.precision]
    since, words = row.when, row.words
    if row.drifts:
        words = f"{words}; {row.changed}"
    elif row.real:
        words = f"{since} {row.change}; {row.changed}"
    else:
        # A cell has a row for each of its states: without the run they look alike.
        names.append(since)
    reason = f": {row.reason}" if row.reason else ""
    counted = "" if row.drifts or (row.ratio is not None and row.ratio.low is None) else f" ({_count(row)})"
    return f"{', '.join(visible(name, 80) for name in names)}: {words}{reason}{counted}"


def _runs(side: Side, *, last: bool = False) -> str:
    first, end = side.cells[0].run_id, side.cells[-1].run_id
    return end if last or first == end else f"{first} to {end}"


def _since(row: Moved) -> str:
    return f"from {_runs(row.before)} to {row.after.cells[-1].run_id}" if row.drifts else row.when


_COLUMNS = (
    *export.CELL,
    export.Column("before", lambda row: _runs(row.before), narrows=True),
    export.Column("since", lambda row: _runs(row.after, last=row.drifts), narrows=True),
    export.Column("before, a step", lambda row: duration(row.seconds[0])),
    export.Column("since, a step", lambda row: duration(row.seconds[1])),
    *export.RATIO,
)


def table(rows: Sequence[Moved]) -> export.Table:
    """Rows of a history as people read them."""
    notes = export.shared_reasons(rows)
    changed = export.Column("what changed", lambda row: row.changed)
    return export.table((*_COLUMNS, export.verdict(notes), changed), rows, notes)


def compact(rows: Sequence[Moved]) -> export.Compact:
    """Rows of a history in few columns."""
    return export.in_few_columns(
        rows,
        (*export.CELL, export.Column("", _since)),
        (
            export.Column("runs", lambda row: str(len(row.before.cells) + len(row.after.cells))),
            export.Column("before", lambda row: number(1e3 * row.seconds[0])),
            export.Column("since", lambda row: number(1e3 * row.seconds[1])),
        ),
        told=lambda row: row.changed if row.differences or row.real else "",
        what="what changed",
        caption="ms a step, before and since",
    )


def records(history: History) -> list[MovedRecord]:
    """A flat record for each row: b_runs are those since the change. Of a drift the seconds are those of the line's ends."""
    return [
        {
            **export.contrast(row),
            "a_seconds": row.seconds[0],
            "b_seconds": row.seconds[1],
            "kind": row.kind,
            "level": row.level,
        }
        for row in history.rows
    ]


def every_record(history: History) -> list[dict[str, Any]]:
    """Both kinds of records with the same fields, for CSV. Of a cell that fails since, an open row would say the same cell twice."""
    failing = {sessions.same(one.cell) for one in history.broken}
    rows = [(row, dict(record)) for row, record in zip(history.rows, records(history), strict=True)]
    fields = dict.fromkeys(rows[0][1]) if rows else {}
    kept = (record for row, record in rows if row.verdict != "open" or sessions.same(row.cell) not in failing)
    return [*kept, *(fields | dict(one.record) for one in history.broken)]


def document(history: History) -> HistoryDocument:
    """The whole history as JSON."""
    return {
        "runs": history.runs,
        "summary": history.summary,
        "moved_together": history.together,
        "exit_code": history.exit_code,
        "rows": records(history),
        "broken": [one.record for one in history.broken],
        "measured_once": history.once,
        "not_compared": history.unfit,
    }


def markdown(history: History, rows: Sequence[Moved]) -> str:
    """The summary, and a table of the given rows. Without rows: a line for each cell."""
    parts = [f"**{export.escaped(history.summary)}**", *(export.escaped(one.line, 400) for one in history.broken)]
    if history.together:
        parts.append(export.escaped(history.together, 400))
    if rows:
        parts += [export.markdown(table(rows)), HOW]
    elif history.rows:
        parts.append("\n".join(f"- {export.escaped(line, 600)}" for line in history.lines))
    return export.in_a_comment("\n\n".join(parts) + "\n")
