"""`runner compare A B`: two runs, or two images, frameworks, GPUs or CUDA versions of the same runs, cell against cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal

from typing_extensions import TypedDict

from reports.answers import export, overview
from reports.answers import left as of_runs
from reports.answers.contrast import ALPHA, METHOD, OF_EVERY_IMAGE, Contrast, Side, as_ranked, own_versions, shown
from reports.answers.partners import CompareError, Unpaired, cells_of, kind_of, matched, measured, unpaired
from reports.answers.sessions import SHARED, CommonShift, between_runs, two_runs
from reports.data.model import Profile, Tables
from reports.wording import framework_name, listing, number, percent, plural
from runner.errors import ExitCode, one_code
from runner.results.cells import MOST_NAMES, not_yet_run
from runner.results.on_disk.image_names import NO_LOCK, is_address
from runner.results.on_disk.roles import NamedCell
from runner.results.rank.ranking import MARGIN, Verdict
from runner.results.statistics import SESSION_DEVIATION, of_kind
from runner.text import visible

# The operations that take another part of a step on one of two sides, as the framework's own profiler saw them (`--profile`).

# A profile is of a few steps: a smaller part of the longer step is its noise. Of many operations the first explain the most.
LEAST, MOST = 0.03, 5

Profiles = Mapping[tuple[str, str], Profile]


def profile_changes(rows: Sequence[Contrast], profiles: Profiles) -> Iterator[str]:
    """A line for each row whose two sides have a profile: of the operations that differ first the one with the most time between them."""
    for row in rows:
        before, after = _profile(row.before, profiles), _profile(row.after, profiles)
        if before is None or after is None:
            continue
        changed = [text for _, text in sorted(_changes(before, after), reverse=True)[:MOST]]
        what = "; ".join(changed) or f"no operation differs by {percent(LEAST, 1)} of a step"
        yield visible(f"profile of {row.cell.key.workload}: {what}", 600)


def _profile(side: Side, profiles: Profiles) -> Profile | None:
    return next((found for cell in side.cells if (found := profiles.get((cell.run_id, cell.cell_id)))), None)


def _changes(before: Profile, after: Profile) -> Iterator[tuple[float, str]]:
    """(seconds of a step between the two, the change in words) of each operation that differs."""
    least = LEAST * max(before.busy_seconds, after.busy_seconds)
    old, new = ({(one.on, one.name): one for one in side.operations} for side in (before, after))
    for key in old.keys() | new.keys():
        ends = old.get(key), new.get(key)
        first, second = (one.seconds if one else 0.0 for one in ends)
        if abs(first - second) >= least:
            shares = " → ".join(percent(one.share, 2) if one else "none" for one in ends)
            yield abs(first - second), f"{key[1]} {number(1e3 * first)} → {number(1e3 * second)} ms ({shares})"


MOST_NAMED = 3  # of the values of a fact on one side
_ALL = "all cells together"


# Facts that may explain why no cell of one side is in the other.
_FACTS = (
    *export.CELL,
    export.Column("mode", lambda row: row.cell.mode or "default"),
    export.Column("batch", lambda row: str(row.cell.key.batch)),
)
# Facts that always differ between the sides: of most kinds the cell.
_IS_A_SIDE = {"run": (), "gpu": ("device",)}


def _some(values: Sequence[str]) -> str:
    more = [f"{len(values) - MOST_NAMED} more"] if len(values) > MOST_NAMED else []
    return listing([*values[:MOST_NAMED], *more])


class UnpairedRecord(NamedCell):
    """A cell that one side has alone. Lost: the first side measured it, and the second tried and failed."""

    reason: str
    lost: bool


class FigureRecord(TypedDict):
    """The figures of a row, without its cells."""

    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p: float | None
    verdict: Verdict
    reason: str
    differences: str


class ShiftRecord(FigureRecord):
    """The factor that moved the cells of two runs together, and how far sessions differ: from so many runs, or from none, as assumed."""

    cell_count: int
    moved_count: int
    sessions_differ_by: float
    sessions_from_runs: int


class ComparisonDocument(TypedDict):
    """`b` against `a`. The level is that of all intervals."""

    by: str
    a: str
    b: str
    margin: float
    level: float
    correction: Literal["Holm"]
    common_shift: ShiftRecord | None
    exit_code: int
    summary: str
    rows: list[export.ContrastRecord]
    unpaired: list[UnpairedRecord]


@dataclass(frozen=True)
class Comparison:
    """Side `b` against side `a`."""

    kind: str
    a: str
    b: str
    margin: float
    rows: tuple[Contrast, ...]
    unpaired: tuple[Unpaired, ...]
    shift: CommonShift | None = None  # of two runs
    left: tuple[of_runs.Left, ...] = ()  # what the runs of these cells planned and have not yet run
    profiled: tuple[str, ...] = ()  # sentences on the operations in which two profiles differ

    @property
    def exit_code(self) -> int:
        """0: nothing takes longer. 1: something does by more than the margin, or perhaps by more, or no longer runs. 3: some row is open,
        or the second side has not yet run what the first measured, or a side measured it with too much noise or too few
        windows. Of two runs all cells together are a row."""
        if any(row.told_slower for row in self.all_rows) or any(cell.lost for cell in self.unpaired):
            return ExitCode.FOUND
        due = any(cell.due for cell in self.unpaired)
        unfit = any(cell.unfit for cell in self.unpaired)
        undecided = any(row.verdict == "open" for row in self.all_rows)
        return one_code(failed=False, is_open=not self.rows or due or unfit or undecided)

    @property
    def all_rows(self) -> tuple[Contrast, ...]:
        """The cells; of two runs after the row of all cells together."""
        return ((self.shift.row,) if self.shift else ()) + self.rows

    @property
    def summary(self) -> str:
        """One sentence that counts the verdicts, or says that nothing is in both."""
        if self.disjoint:
            return f"no cell of one is in the other{f': {self._apart}' if self._apart else ''}."
        margin = shown(self.margin)
        decided = [row for row in self.rows if row.verdict != "open"]
        real = [row for row in decided if row.real]
        parts = [
            (sum(row.slower for row in real), "slower"),
            (sum(not row.longer and row.matters is not False for row in real), "faster"),
            (sum(row.matters is False for row in real), f"changed by less than {margin}"),
            (len(decided) - len(real), f"the same within {margin}"),
            (sum(row.longer and row.matters is None for row in self.rows), f"slower, perhaps by less than {margin}"),
            (sum(row.verdict == "open" for row in self.rows), "open, since the data do not tell"),
        ]
        apart = [
            (sum(cell.lost for cell in self.unpaired), "no longer measured"),
            (sum(cell.unfit for cell in self.unpaired), "too noisy, with too few windows, or without parity at fp32"),
        ]
        counts = listing([f"{many} {words}" for many, words in parts if many])
        compared = f"{plural(len(self.rows), 'cell')} compared" if self.rows else "no cell is compared"
        together = f" All cells together: {self.shift.row.words}." if self.shift else ""
        if self.shift and self.shift.row.real and self.shift.agreed:
            together += f" {SHARED}"
        others = listing([f"{many} {words}" for many, words in apart if many])
        return (
            compared + (f": {counts}." if counts else ".") + (f" Not compared: {others}." if others else "") + together
        )

    @property
    def disjoint(self) -> bool:
        """True if no cell is on both sides."""
        return not self.rows and not any(cell.both for cell in self.unpaired)

    @property
    def _apart(self) -> str:
        """The facts of which the two sides share no value: `workload cnn-cifar10 in a, gru-imdb in b`."""
        sides = [[one for one in self.unpaired if one.side == side] for side in (self.a, self.b)]
        parts = []
        for column in _FACTS:
            values = [sorted({visible(column.of(one), 80) for one in side}) for side in sides]
            if column.head not in _IS_A_SIDE.get(self.kind, ("cell",)) and not set(values[0]) & set(values[1]):
                parts.append(
                    f"{column.head} {_some(values[0])} in {visible(self.a, 80)}, {_some(values[1])} in {visible(self.b, 80)}"
                )
        parts += [f"the file of {name} changed between them" for name in _changed_files(*sides)]
        return "; ".join(parts)


def comparison(tables: Tables, a: str, b: str, by: str | None = None, margin: float = MARGIN) -> Comparison:
    """Compare what `b` names with what `a` names. Raises CompareError where one does not exist or no cells match.

    Without `by`, the kind is the first of KINDS that has both words. Of two runs all others may show how far sessions differ.
    """
    if a == b:
        raise CompareError(f"both sides are {a!r}; name two")
    kind = kind_of(tables.cells, a, b, by)
    left_cells, right_cells = (cells_of(kind, tables.cells, word) for word in (a, b))
    left, right = matched(kind, left_cells, right_cells, a, b)
    fit_left, fit_right = measured(left, right), measured(right, left)
    shared = [match for match in fit_left if match in fit_right]
    pairs = [(Side(tuple(fit_left[match])), Side(tuple(fit_right[match]))) for match in shared]
    rows, shift = (
        two_runs(pairs, margin, tables) if kind.name == "run" else (between_runs(pairs, margin, tables.cells), None)
    )
    rows = rows if kind.name == "run" else as_ranked(rows, tables.groups)
    runs = {cell.run_id for cell in (*left_cells, *right_cells)}
    lacking = of_runs.left((cell for cell in tables.cells if cell.run_id in runs), tables.runs)
    profiled = tuple(profile_changes(rows, tables.profiles))
    return Comparison(kind.name, a, b, margin, rows, tuple(unpaired(left, right, a, b)), shift, lacking, profiled)


def _changed_files(left: Sequence[Unpaired], right: Sequence[Unpaired]) -> list[str]:
    """The person's own networks of which each side has another version."""
    old, new = (own_versions(one.cell for one in side) for side in (left, right))
    return sorted(name for name in old.keys() & new.keys() if not old[name] & new[name])


def different_images(comparison: Comparison) -> tuple[list[str], list[str]] | None:
    """The images of each of two runs that share none. The first ones compute the same framework, where two do."""
    left, right = (
        sorted({(one.cell.framework, one.cell.image) for one in comparison.unpaired if one.cell.run_id == run})
        for run in (comparison.a, comparison.b)
    )
    if not comparison.disjoint or {image for _, image in left} & {image for _, image in right}:
        return None
    same = {framework for framework, _ in left} & {framework for framework, _ in right}
    first, second = (
        list(dict.fromkeys(visible(image, 80) for _, image in sorted(side, key=lambda pair: pair[0] not in same)))
        for side in (left, right)
    )
    return first, second


_SIDES = (attrgetter("before"), attrgetter("after"))


# The most images in a command.
_MOST_IMAGES = 4

# The kinds whose sides are other images: the heads of a table name the sides, and a row what both share.
_ACROSS_IMAGES = ("image", "framework", "cuda")


def _frameworks(row: Contrast) -> str:
    """The framework of both sides, or those of the two, with the mode where it is not the default."""
    cells = (row.before.cells[0], row.after.cells[0])
    names = listing(list(dict.fromkeys(framework_name(cell.framework) for cell in cells)))
    return names if row.cell.mode in ("", "default") else f"{names} · {row.cell.mode}"


def _implied(kind: str, row: Contrast) -> tuple[str, ...]:
    """The facts that always differ between what the sides are."""
    if row.before.cells[0].framework != row.after.cells[0].framework:
        return ("framework", "lock", "code", "image")
    return OF_EVERY_IMAGE if kind == "image" else ()


def _differences(kind: str, row: Contrast) -> str:
    """The recorded differences, besides the sides themselves; of two runs also what was seen of the machine meanwhile."""
    implied = _implied(kind, row) if row.after.cells else ()
    # Another framework or image does other work: its power and heat follow from that.
    seen = row.observed if kind == "run" else ()
    facts = [str(fact) for fact in (*row.differences, *seen) if fact.name not in implied]
    return "; ".join((*facts, *_robust(kind, row)))


def _robust(kind: str, row: Contrast) -> Iterator[str]:
    """The failed repeats and the stalls of each side."""
    for cell in (*row.before.cells, *row.after.cells):
        if words := ", ".join(filter(None, (cell.lost, str(cell.stalls or ""), str(cell.left_out or "")))):
            yield f"{cell.run_id if kind == 'run' else cell.label}: {words}"


def _shared_columns(kind: str) -> tuple[export.Column, ...]:
    """The common columns of both sides of a row. The sides themselves are no such thing."""
    cell, *others = export.CELL
    if kind in _ACROSS_IMAGES:
        cell = export.Column("framework", _frameworks, narrows=True)
    return (cell, *(column for column in others if column.head not in _IS_A_SIDE.get(kind, ())))


def _with_all(columns: Sequence[export.Column], rows: Sequence[Contrast]) -> tuple[export.Column, ...]:
    """The columns, in which the row of all cells says what they share, and which row it is."""
    return tuple(replace(column, of=partial(_of_all, column, rows)) for column in columns)


def _of_all(column: export.Column, rows: Sequence[Contrast], row: Contrast) -> str:
    if row.after.cells:
        return column.of(row)
    shared = {column.of(row) for row in rows}
    return _ALL if column.head == "cell" else shared.pop() if len(shared) == 1 else "all"


def table(comparison: Comparison) -> export.Table:
    """The comparison as people read it."""
    cell, *others = _with_all(_shared_columns(comparison.kind), comparison.rows)
    notes = export.shared_reasons(comparison.all_rows)
    beside = any(row.beside for row in comparison.rows)
    sides = export.contrast_columns(comparison.a, comparison.b, beside=beside, notes=notes)
    differs = export.Column("what else differs", lambda row: _differences(comparison.kind, row), narrows=True)
    columns = (cell, *others, *sides, differs)
    return export.table(columns, comparison.all_rows, notes)


def compact(comparison: Comparison) -> export.Compact:
    """The comparison in few columns. The intervals of the step times are in the other formats."""
    sides = f"ms a step of A, {comparison.a}, and B, {comparison.b}"
    figures = (
        export.Column("A", lambda row: export.step_alone(row.before.step)),
        export.Column("B", lambda row: export.step_alone(row.after.step)),
    )
    return export.in_few_columns(
        comparison.all_rows,
        _with_all(_shared_columns(comparison.kind), comparison.rows),
        figures,
        told=lambda row: _differences(comparison.kind, row),
        what="what else differs",
        caption=sides,
    )


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """The comparison for machines: a flat record a row, numbers as numbers, seconds. The row of all cells has no image, and comes first."""
    compared: list[dict[str, Any]] = [{"row": "cell", **export.contrast(row)} for row in comparison.rows]
    fields = dict.fromkeys(compared[0]) if compared else {}
    cells = [*compared, *(fields | _unpaired(one) for one in comparison.unpaired)]
    if comparison.shift is None:
        return cells
    row = comparison.shift.row
    figures = {name: value for name, value in _figures(row).items() if name in fields}
    return [fields | {"row": _ALL} | figures, *cells]


def _unpaired(one: Unpaired) -> dict[str, Any]:
    """The record of a cell that one side has alone."""
    verdict = "no longer measured" if one.lost else "not yet run" if one.awaited else "not compared"
    return {"row": "cell", **export.of_cell(one.cell), "verdict": verdict, "reason": one.reason}


def _figures(row: Contrast) -> FigureRecord:
    ratio = row.ratio
    return {
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "p": row.p,
        "verdict": row.verdict,
        "reason": row.reason,
        "differences": "; ".join(map(str, row.differences)),
    }


def document(comparison: Comparison) -> ComparisonDocument:
    """The whole comparison as JSON."""
    return {
        "by": comparison.kind,
        "a": comparison.a,
        "b": comparison.b,
        "margin": comparison.margin,
        "level": 1 - ALPHA,
        "correction": "Holm",
        "common_shift": _shift(comparison.shift),
        "exit_code": comparison.exit_code,
        "summary": comparison.summary,
        "rows": [export.contrast(row) for row in comparison.rows],
        "unpaired": [
            {**export.of_cell(one.cell), "reason": one.reason, "lost": one.lost} for one in comparison.unpaired
        ],
    }


def _shift(shift: CommonShift | None) -> ShiftRecord | None:
    if shift is None or shift.sessions is None:
        return None
    sessions = shift.sessions
    return {
        **_figures(shift.row),
        "cell_count": shift.rows,
        "moved_count": shift.moved,
        "sessions_differ_by": sessions.deviation,
        "sessions_from_runs": sessions.runs,
    }


def method(comparison: Comparison) -> str:
    """How the verdicts are made, and what would make them surer."""
    runs, images = (
        [{getattr(cell, name) for row in comparison.rows for cell in side(row).cells} for side in _SIDES]
        for name in ("run_id", "image")
    )
    if runs[0] & runs[1]:
        return METHOD
    if comparison.shift and comparison.shift.sessions:
        return f"{METHOD} Two runs differ by themselves, which repeats do not show: {comparison.shift.sessions.source}."
    device = comparison.rows[0].cell.key.device_kind if comparison.rows else ""
    assumed = of_kind(SESSION_DEVIATION, device)
    differ = f"{METHOD} Two runs differ by themselves: the ratio's interval assumes {percent(assumed, 1)} of each run."
    if images[0] == images[1]:
        return f"{differ} Repeats do not show by how much. Several runs do: `runner history` takes them all."
    return f"{differ} To compare without that, measure both in one run: `runner matrix --images {','.join(_both(images))}`."


def _both(images: Sequence[set[str]]) -> list[str]:
    """The images of two sides, as --images takes them; of many a pattern that somebody fills in."""
    names = sorted(images[0] | images[1])
    return [visible(name, 80) for name in names] if len(names) <= _MOST_IMAGES else ["A", "B"]


def remarks(comparison: Comparison) -> list[str]:
    """The lines under the table: the count of verdicts, how a run drifted, and each cell that has no partner, with the reason."""
    cells = [cell for row in comparison.rows for side in (row.before, row.after) for cell in side.cells]
    drifted = [visible(str(drift), 300) for drift in overview.drifts(cells)]
    missed = [
        f"not compared: {visible(cell.cell.name, 80)}, {visible(cell.cell.key.workload, 80)}: {visible(cell.reason, 200)}"
        for cell in comparison.unpaired
        if not (cell.awaited or comparison.disjoint)
    ]
    awaited = not_yet_run(cell.cell for cell in comparison.unpaired if cell.awaited)
    # These lines are longer than others: they name every cell.
    missed += [f"not compared: {visible(line, MOST_NAMES)}" for line in awaited]
    undecided = any(row.verdict == "open" for row in comparison.rows)
    rest = list(_to_tell_more(comparison)) if undecided else []
    rest += _of_more_runs(comparison)
    said = f"{visible(comparison.b, 80)} against {visible(comparison.a, 80)}: {comparison.summary}"
    moved = [visible(line, 400) for line in _of_no_catalog(comparison)]
    return [said, *comparison.profiled, *moved, *(visible(line, 300) for line in rest), *drifted, *missed]


def _of_no_catalog(comparison: Comparison) -> Iterator[str]:
    """Lines for each image of no catalog: it has no lock, and its name may have meant another image on the other side."""
    sides: dict[str, list[set[str]]] = {}
    for row in comparison.rows:
        for at, side in enumerate(_SIDES):
            for cell in side(row).cells:
                if is_address(cell.image):
                    sides.setdefault(cell.image, [set(), set()])[at].add(str(cell.row.get("image_digest")))
    for name, (before, after) in sides.items():
        yield f"{name}: {NO_LOCK} ({listing(sorted(before | after))})"
        if before and after and before != after:
            yield (
                f"{name} is not the same image on both sides: {listing(sorted(before))} in {comparison.a}, {listing(sorted(after))} in "
                f"{comparison.b}"
            )


def _of_more_runs(comparison: Comparison) -> list[str]:
    """The way to settle the open rows of two runs: repeats do not show how far runs differ, other runs do."""
    shift = comparison.shift
    if shift is None or shift.sessions is None or not any(row.verdict == "open" for row in comparison.all_rows):
        return []
    if shift.sessions.runs:
        return ["to settle what is open: `runner history` takes all runs of this folder"]
    return ["to settle what is open: measure two more runs of each side into this folder, and compare again"]


def _to_tell_more(comparison: Comparison) -> Iterator[str]:
    """How the open rows get more repeats: from their own runs, or where these have much else to do, alone."""
    rows = [row for row in comparison.rows if row.verdict == "open"]
    cells = [cell for row in rows for side in _SIDES for cell in side(row).cells]
    own = {
        entry.run_id: sum(of_runs.lacks(cell) for cell in cells if cell.run_id == entry.run_id)
        for entry in comparison.left
    }
    for entry in comparison.left:
        if own[entry.run_id] == entry.repeats:
            yield f"to tell more: `{entry.command}` ({entry.count}{entry.time})"
        elif own[entry.run_id]:
            of = f"{plural(own[entry.run_id], 'repeat')} of these cells, and the rest of the run: {entry.count}{entry.time}"
            yield f"to tell more: `{entry.command}` ({of})"
    if comparison.kind in _ACROSS_IMAGES and any(own[entry.run_id] < entry.repeats for entry in comparison.left):
        repeats = max((row.enough for row in rows if row.enough), default=None)
        time = of_runs.time_of(cells, repeats) if repeats else ""
        yield f"to measure only these cells, in a new run: `{of_runs.alone(cells, repeats)}`{time}"


def markdown(comparison: Comparison) -> str:
    """The comparison for a pull request."""
    said, *missed = (export.escaped(line, 2 * MOST_NAMES) for line in remarks(comparison))
    lines = [f"**{said}**", ""]
    lines += [export.markdown(table(comparison)), "", method(comparison), ""] if comparison.rows else []
    return export.in_a_comment("\n".join([*lines, *(f"- {line}" for line in missed)]).rstrip() + "\n")
