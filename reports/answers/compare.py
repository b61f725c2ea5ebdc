"""`runner compare A B`: two runs, or two images, frameworks, GPUs or CUDA versions of the same runs, cell against cell."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from reports.answers import export
from reports.answers import left as of_runs
from reports.answers.contrast import ALPHA, MARGIN, METHOD, Contrast, Side, shown
from reports.answers.drift import drifts
from reports.answers.left import Left
from reports.answers.sessions import CommonShift, between_runs
from reports.data.model import MeasuredCell, Tables
from reports.text import framework_name, listing, percent, plural
from runner.errors import UserError
from runner.results.cells import MISSING, not_yet_run
from runner.results.statistics import SESSION_DEVIATION, of_kind
from runner.text import visible

MOST_NAMED = 3  # of the values of a fact on one side

# What a cell has in common with its partner: the values of the fields that its kind names.
Match = tuple[object, ...]


class CompareError(UserError):
    """The sides do not exist or cannot be compared; the message says what there is."""


@dataclass(frozen=True)
class Kind:
    """A kind of thing that can be compared: the words that name the thing a cell belongs to, and the fields that partners share.

    `loose` are the fields where no cell has a partner otherwise: for images of different frameworks, and for CUDA
    versions that no single release of a framework was built for.
    """

    name: str
    words: Callable[[MeasuredCell], tuple[str, ...]]
    match: Callable[[MeasuredCell], Match]
    loose: Callable[[MeasuredCell], Match] | None = None


# All partners share these. The kind of data is compared later: a cell that failed early never recorded it.
_ALWAYS = ("key.workload", "key.precision", "key.preset", "key.devices", "key.scaling", "key.batch", "mode")
_DEVICE = (*_ALWAYS, "key.device_kind", "key.device_model")


def _gpus(cell: MeasuredCell) -> tuple[str, ...]:
    if cell.key.device_kind == "cpu":
        return (cell.key.device_model,)
    uuids = cell.row.get("device_uuids")
    return (cell.key.device_model, *(str(uuid) for uuid in (uuids if uuids is not None else ())))


def _cuda_versions(cell: MeasuredCell) -> tuple[str, ...]:
    return (str(cell.row["cuda_version"]),) if cell.row.get("cuda_version") else ()


KINDS = {
    kind.name: kind
    for kind in (
        Kind("run", lambda cell: (cell.run_id,), attrgetter(*_DEVICE, "image", "framework", "uuid")),
        Kind("image", lambda cell: (cell.image,), attrgetter(*_DEVICE, "framework"), attrgetter(*_DEVICE)),
        Kind("framework", lambda cell: (cell.framework,), attrgetter(*_DEVICE)),
        Kind("gpu", _gpus, attrgetter(*_ALWAYS, "image", "framework")),
        Kind("cuda", _cuda_versions, attrgetter(*_DEVICE, "framework", "version"), attrgetter(*_DEVICE, "framework")),
    )
}


# What may be why no cell of one side is in the other.
_FACTS = (
    *export.CELL,
    export.Column("mode", lambda row: row.cell.mode or "default"),
    export.Column("batch", lambda row: str(row.cell.key.batch)),
)
# What always differs between the sides: of most kinds the cell.
_IS_A_SIDE = {"run": (), "gpu": ("device",)}


def _some(values: Sequence[str]) -> str:
    more = [f"{len(values) - MOST_NAMED} more"] if len(values) > MOST_NAMED else []
    return listing([*values[:MOST_NAMED], *more])


@dataclass(frozen=True)
class Unpaired:
    """A cell that has nothing to be compared with, or that is the reason why another one has not."""

    cell: MeasuredCell
    side: str  # the word of the side that it is on
    reason: str
    both: bool = False  # both sides have it, and this is the side that says nothing of it
    lost: bool = False  # the first side measured it, and the second tried and failed
    awaited: bool = False  # it is not yet run
    due: bool = False  # the same, and the first side measured it
    unfit: bool = False  # it was measured with too much noise or too few windows to say anything


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
    left: tuple[Left, ...] = ()  # what the runs of these cells planned and have not yet run
    # What the report says otherwise of the same cells, and why.
    report: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: nothing takes longer by more than the margin. 1: something does, or no longer runs. 2: the data cannot tell for some row,
        or the second side has not yet run what the first measured, or a side measured it with too much noise or too few
        windows, or all rows moved together by more than two sessions are assumed to differ by."""
        if any(row.slower for row in self.rows) or any(cell.lost for cell in self.unpaired):
            return 1
        due = any(cell.due for cell in self.unpaired)
        unfit = any(cell.unfit for cell in self.unpaired)
        large = self.shift is not None and self.shift.large
        undecided = any(row.undecided for row in self.rows)
        return 2 if not self.rows or due or unfit or large or undecided else 0

    @property
    def summary(self) -> str:
        """One sentence that counts the verdicts, or says that nothing is in both."""
        if self.disjoint:
            return f"no cell of one is in the other{f': {self._apart}' if self._apart else ''}."
        margin = shown(self.margin)
        decided = [row for row in self.rows if not row.undecided]
        real = [row for row in decided if row.verdict == "real"]
        parts = [
            (sum(row.slower for row in real), "slower"),
            (sum(not row.longer and row.matters is not False for row in real), "faster"),
            (sum(row.matters is False for row in real), f"changed by less than {margin}"),
            (len(decided) - len(real), f"the same within {margin}"),
            (len(self.rows) - len(decided), "undecided"),
            (sum(cell.lost for cell in self.unpaired), "no longer measured"),
            (sum(cell.unfit for cell in self.unpaired), "too noisy or with too few windows"),
        ]
        counts = listing([f"{many} {words}" for many, words in parts if many])
        beside = " beside what moved all" if self.shift and self.shift.known and self.shift.beside else ""
        compared = f"{plural(len(self.rows), 'cell')} compared" if self.rows else "no cell is compared"
        return f"{compared}{beside}" + (f": {counts}." if counts else ".")

    @property
    def disjoint(self) -> bool:
        """Whether no cell is on both sides."""
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
        return "; ".join(parts)


def comparison(tables: Tables, a: str, b: str, by: str | None = None, margin: float = MARGIN) -> Comparison:
    """Compare what `b` names with what `a` names. Raises CompareError where one does not exist or no cells match.

    Without `by`, the kind is the first of KINDS that has both words.
    """
    if a == b:
        raise CompareError(f"both sides are {a!r}; name two")
    kind = _kind(tables.cells, a, b, by)
    left_cells, right_cells = (_cells(kind, tables.cells, word) for word in (a, b))
    left, right = _matched(kind, left_cells, right_cells, a, b)
    fit_left, fit_right = _measured(left), _measured(right)
    shared = [match for match in fit_left if match in fit_right]
    pairs = [(Side(tuple(fit_left[match])), Side(tuple(fit_right[match]))) for match in shared]
    rows, shift = between_runs(pairs, margin, tables.cells, common=kind.name == "run")
    runs = {cell.run_id for cell in (*left_cells, *right_cells)}
    beside = _beside_the_report(rows, tables)
    lacking = of_runs.left((cell for cell in tables.cells if cell.run_id in runs), tables.runs)
    return Comparison(kind.name, a, b, margin, rows, tuple(_unpaired(left, right, a, b)), shift, lacking, beside)


def _beside_the_report(rows: Sequence[Contrast], tables: Tables) -> tuple[str, ...]:
    """Of the rows whose verdict is not the report's on the same two cells: what the report says, and why.

    Both have the same ratio and the same chance. They ask another number of questions at once.
    """
    answers = {
        frozenset((group.ranked[0].cell.anchor, entry.cell.anchor)): (entry, group)
        for group in tables.groups
        for entry in group.ranked[1:]
        if not group.unsettled
    }
    said = []
    for row in rows:
        entry, group = answers.get(frozenset((*row.before.anchors, *row.after.anchors)), (None, None))
        if entry is None or group is None or min(len(row.before.repeats), len(row.after.repeats)) < 2:
            continue
        best, where = group.ranked[0].cell.label, f"{entry.cell.label}, {entry.cell.key.workload}"
        if row.verdict == "real" and not entry.apart:
            asks = f"it compares all {len(group.ranked)} cells at once"
            level = "is not settled against" if entry.open else "is tied with"
            said.append(f"in the report: {where} {level} {best}, since {asks}")
        if row.verdict != "real" and entry.apart:
            said.append(
                f"in the report: {where} is slower than {best}, since it has not the other {len(rows) - 1} rows beside it"
            )
    return tuple(said)


def has_both(tables: Tables, a: str, b: str, by: str | None = None) -> bool:
    """Whether both words name something of one kind in these runs."""
    try:
        _kind(tables.cells, a, b, by)
    except CompareError:
        return False
    return True


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


Matched = dict[Match, list[MeasuredCell]]
_SIDES = (attrgetter("before"), attrgetter("after"))


def _kind(cells: Sequence[MeasuredCell], a: str, b: str, by: str | None) -> Kind:
    kinds = [KINDS[by]] if by else list(KINDS.values())
    for kind in kinds:
        if all(any(_means(kind, cell, word) for cell in cells) for word in (a, b)):
            return kind
    # A cell that is too noisy to be ranked was measured all the same; and a run is named whatever it measured.
    fit = [cell for cell in cells if cell.step is not None]
    names = {kind.name: sorted({word for cell in fit for word in kind.words(cell)}) for kind in kinds}
    names |= {name: sorted({cell.run_id for cell in cells}) for name in names if name == "run"}
    choices = "; ".join(f"{name}: {', '.join(words) or 'none'}" for name, words in names.items())
    raise CompareError(
        f"{a!r} and {b!r} do not name two things of one kind; these runs measured {choices}; --runs names other runs, "
        "and docs/compare-and-history.md says what can be compared"
    )


def _means(kind: Kind, cell: MeasuredCell, word: str) -> bool:
    """Whether `word` names the cell. A part of the model's name is enough for a device."""
    if word in kind.words(cell):
        return True
    if kind.name == "image":
        return word == f"{cell.image}:{cell.framework}"
    if kind.name == "framework":
        return word.casefold() in (cell.framework.casefold(), framework_name(cell.framework).casefold())
    return kind.name == "gpu" and word.casefold() in cell.key.device_model.casefold()


def _cells(kind: Kind, cells: Iterable[MeasuredCell], word: str) -> list[MeasuredCell]:
    chosen = [cell for cell in cells if _means(kind, cell, word)]
    models = sorted({cell.key.device_model for cell in chosen})
    if kind.name == "gpu" and len(models) > 1:
        raise CompareError(f"{word!r} is part of several devices' names: {listing(models)}; give one whole name")
    return list(_of_one_image(chosen, word)) if kind.name == "framework" else chosen


def _of_one_image(chosen: Sequence[MeasuredCell], word: str) -> Sequence[MeasuredCell]:
    """The cells of a framework's one image that was measured. Raises CompareError where several were."""
    images = sorted({cell.image for cell in chosen if cell.comparable})
    if len(images) > 1:
        raise CompareError(f"{word!r} was measured in several images: {listing(images)}; name an image on each side")
    return [cell for cell in chosen if not images or cell.image == images[0]]


def _matched(
    kind: Kind, left: Sequence[MeasuredCell], right: Sequence[MeasuredCell], a: str, b: str
) -> tuple[Matched, Matched]:
    advice = _advice(kind, {a: left, b: right})
    of_left, of_right = _by(kind.match, left, advice), _by(kind.match, right, advice)
    if kind.loose is None or of_left.keys() & of_right.keys():
        return of_left, of_right
    return _by(kind.loose, _named_after(left), advice), _by(kind.loose, _named_after(right), advice)


def _advice(kind: Kind, sides: Mapping[str, Sequence[MeasuredCell]]) -> str:
    """What to compare where a side has several cells that partner the same cell."""
    if kind.name != "image":
        return "compare two images by name instead"
    frameworks = {
        word: sorted({cell.framework for cell in _named_after(cells) if not cell.unranked})
        or sorted({cell.framework for cell in _named_after(cells)})
        for word, cells in sides.items()
    }
    words = [word if len(names) < 2 else f"{word}:{names[0]}" for word, names in frameworks.items()]
    return f"name the framework behind the image: `runner compare {visible(' '.join(words), 200)}`"


def _by(match: Callable[[MeasuredCell], Match], cells: Iterable[MeasuredCell], advice: str) -> Matched:
    matched: Matched = {}
    for cell in cells:
        same = matched.setdefault(match(cell), [])
        if any((other.image, other.framework) != (cell.image, cell.framework) for other in same):
            pairs = sorted({(other.image, other.framework) for other in (*same, cell)})
            if len({image for image, _ in pairs}) == 1:
                both = listing(framework for _, framework in pairs)
                raise CompareError(f"{pairs[0][0]} has cells of {both} at one workload; {advice}")
            images = [f"{image} ({framework})" for image, framework in pairs]
            raise CompareError(f"one side has several images: {listing(images)}; {advice}")
        same.append(cell)
    return matched


def _named_after(cells: Sequence[MeasuredCell]) -> Sequence[MeasuredCell]:
    """Of an image that serves several frameworks, the cells of the framework that it is named after."""
    own = [cell for cell in cells if cell.image.replace("-", "_").startswith(cell.framework + "_")]
    return own or cells


def _measured(side: Mapping[Match, Sequence[MeasuredCell]]) -> Matched:
    fit = {match: [cell for cell in cells if cell.comparable] for match, cells in side.items()}
    return {match: cells for match, cells in fit.items() if cells}


def _unfit(cell: MeasuredCell) -> bool:
    """Whether a cell ended well and computed the right thing, and its figure alone is the reason why it is not ranked."""
    return cell.step is not None and bool(cell.unfit) and cell.unranked == cell.unfit


def _unpaired(left: Matched, right: Matched, a: str, b: str) -> Iterable[Unpaired]:
    fit_left, fit_right = _measured(left), _measured(right)
    for match, cells in left.items():
        if match in fit_left and match not in right:
            yield Unpaired(cells[0], a, f"not in {b}")
        elif match in fit_left and match not in fit_right:
            tried = right[match]
            due = all(cell.status == MISSING for cell in tried)
            unfit = any(map(_unfit, tried))
            # Of several runs one may have tried.
            cell = min(tried, key=lambda cell: cell.status == MISSING)
            yield Unpaired(cell, b, _in(b, cell), True, not (due or unfit), due, due, unfit)
        elif match not in fit_left:
            yield Unpaired(
                cells[0],
                a,
                _in(a, cells[0]),
                both=match in right,
                awaited=cells[0].status == MISSING,
                unfit=any(map(_unfit, cells)),
            )
    for match, cells in right.items():
        if match not in left:
            yield Unpaired(cells[0], b, f"not in {a}")


def _in(side: str, cell: MeasuredCell) -> str:
    """Why a cell says nothing, and on which side that is."""
    return f"in {side}: {cell.unranked}"


# So many images are named in a command.
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
    return ("lock", "image") if kind == "image" else ()


def _differences(kind: str, row: Contrast) -> str:
    """What was recorded to differ besides what the sides are."""
    return "; ".join(str(fact) for fact in row.differences if fact.name not in _implied(kind, row))


def _shared_columns(kind: str) -> tuple[export.Column, ...]:
    """What both sides of a row have in common. The sides themselves are no such thing."""
    cell, *others = export.CELL
    if kind in _ACROSS_IMAGES:
        cell = export.Column("framework", _frameworks, narrows=True)
    return (cell, *(column for column in others if column.head not in _IS_A_SIDE.get(kind, ())))


def table(comparison: Comparison) -> export.Table:
    """The comparison as people read it."""
    cell, *others = _shared_columns(comparison.kind)
    notes = export.shared_reasons(comparison.rows)
    sides = export.contrast_columns(comparison.a, comparison.b, beside=comparison.shift is not None, notes=notes)
    differs = export.Column("what else differs", lambda row: _differences(comparison.kind, row), narrows=True)
    columns = (cell, *others, *sides, differs)
    return export.table(columns, comparison.rows, notes)


@dataclass(frozen=True)
class Compact:
    """The comparison for a narrow terminal: rows under headings that name what they are of, and each reason once below."""

    captions: tuple[str, ...]
    heads: tuple[str, ...]
    groups: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
    notes: tuple[str, ...]


# The columns of numbers of a compact table.
COMPACT_NUMBERS = ("A", "B", "ratio")


def compact(comparison: Comparison) -> Compact:
    """The comparison in few columns. The intervals of the step times are in the other formats."""
    rows = comparison.rows
    words = {column.head: [column.of(row) for row in rows] for column in _shared_columns(comparison.kind)}
    # What all rows share is said once. One row is named by its workload.
    same = [head for head in words if len(set(words[head])) == 1 and (len(rows) > 1 or head != "workload")]
    label, *others = [head for head in ("workload", *words) if head not in same] or ["workload"]
    others = [head for head in others if head != label]
    notes = export.shared_reasons(rows, each=True)
    differs = export.numbered((_differences(comparison.kind, row) for row in rows), after=len(notes))
    groups: dict[str, list[tuple[str, ...]]] = {}
    for at, row in enumerate(rows):
        verdict = export.verdict(notes).of(row)
        told = _differences(comparison.kind, row)
        figures = (export.step_alone(row.before.step), export.step_alone(row.after.step), *export.ratio(row.judged))
        line = (words[label][at], *figures, verdict + (f" [{differs[told]}]" if told else ""))
        groups.setdefault(" · ".join(words[head][at] for head in others), []).append(line)
    beside = comparison.shift is not None and any(row.beside for row in rows)
    sides = f"ms a step of A, {comparison.a}, and B, {comparison.b}{'; the ratio is beside what moved all' if beside else ''}"
    shared = ", ".join(f"{head} {words[head][0]}" for head in same if words[head][0])
    return Compact(
        tuple(filter(None, (shared, sides))),
        (label, *COMPACT_NUMBERS, "95 %", "verdict"),
        tuple((heading, tuple(lines)) for heading, lines in groups.items()),
        (
            *(f"[{number_}] {part}" for part, number_ in notes.items()),
            *(f"[{number_}] what else differs: {part}" for part, number_ in differs.items()),
        ),
    )


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """The comparison for machines: a flat record a row, numbers as numbers, seconds."""
    return [export.contrast(row) for row in comparison.rows]


def document(comparison: Comparison) -> dict[str, Any]:
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
        "rows": records(comparison),
        "unpaired": [
            {column.head: column.of(cell) for column in export.CELL}
            | {"cell": cell.cell.image, "framework": cell.cell.framework, "reason": cell.reason, "lost": cell.lost}
            for cell in comparison.unpaired
        ],
    }


def _shift(shift: CommonShift | None) -> dict[str, Any] | None:
    if shift is None:
        return None
    ratio = shift.ratio
    return {
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "cells": shift.rows,
        "moved": shift.moved,
        "said": shift.said,
    }


def headline(comparison: Comparison) -> str:
    """What stands above the table: what moved all cells of two runs; empty where nothing did."""
    shift = comparison.shift
    if shift is None or not shift.said or shift.large:
        return shift.said if shift else ""
    return f"{shift.said} Each cell is judged {'beside that' if shift.beside else 'by its own ratio'}."


def method(comparison: Comparison) -> str:
    """How the verdicts are made, and what would make them surer."""
    runs, images = (
        [{getattr(cell, name) for row in comparison.rows for cell in side(row).cells} for side in _SIDES]
        for name in ("run_id", "image")
    )
    if runs[0] & runs[1]:
        return METHOD
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
    drifted = [visible(str(drift), 300) for drift in drifts(cells)]
    missed = [
        f"not compared: {visible(cell.cell.name, 80)}, {visible(cell.cell.key.workload, 80)}: {visible(cell.reason, 200)}"
        for cell in comparison.unpaired
        if not (cell.awaited or comparison.disjoint)
    ]
    awaited = not_yet_run(cell.cell for cell in comparison.unpaired if cell.awaited)
    missed += [f"not compared: {visible(line, 300)}" for line in awaited]
    undecided = any(row.undecided for row in comparison.rows)
    rest = list(_to_tell_more(comparison)) if undecided else []
    said = f"{visible(comparison.b, 80)} against {visible(comparison.a, 80)}: {comparison.summary}"
    report = [visible(line, 300) for line in comparison.report]
    return [said, *report, *(visible(line, 300) for line in rest), *drifted, *missed]


def _to_tell_more(comparison: Comparison) -> Iterator[str]:
    """How the undecided rows get more repeats: from their own runs, or where these have much else to do, alone."""
    rows = [row for row in comparison.rows if row.undecided]
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
        yield f"to measure only these cells, in a new run: `{_alone(cells)}`"


def _alone(cells: Sequence[MeasuredCell]) -> str:
    """The command that measures these cells and nothing else."""
    options = {
        "--images": {cell.image for cell in cells},
        "--workloads": {cell.key.workload for cell in cells},
        "--precision": {cell.key.precision for cell in cells} - {"fp32"},
        "--preset": {cell.key.preset for cell in cells} - {"quick"},
        "--modes": {cell.mode for cell in cells} - {"", "default"},
        "--gpus": {"none"} if all(cell.key.device_kind == "cpu" for cell in cells) else set(),
    }
    words = (f"{name} {shlex.quote(','.join(sorted(values)))}" for name, values in options.items() if values)
    return " ".join(["runner matrix", *words])


def markdown(comparison: Comparison) -> str:
    """The comparison for a pull request."""
    said, *missed = (export.escaped(line, 400) for line in remarks(comparison))
    lines = [f"**{said}**", ""]
    lines += [export.escaped(headline(comparison), 400), ""] if headline(comparison) else []
    lines += [export.markdown(table(comparison)), "", method(comparison), ""] if comparison.rows else []
    return "\n".join([*lines, *(f"- {line}" for line in missed)]).rstrip() + "\n"
