"""`runner compare A B`: two runs, or two images, GPUs or CUDA versions of the same runs, cell against cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from reports.answers import export
from reports.answers.contrast import ALPHA, MARGIN, METHOD, Contrast, Side, contrasts
from reports.data.model import MeasuredCell, Tables
from reports.text import listing, plural
from runner.errors import UserError
from runner.text import visible

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
        Kind("gpu", _gpus, attrgetter(*_ALWAYS, "image", "framework")),
        Kind("cuda", _cuda_versions, attrgetter(*_DEVICE, "framework", "version"), attrgetter(*_DEVICE, "framework")),
    )
}


@dataclass(frozen=True)
class Unpaired:
    """A cell that was measured or planned on one side and has no partner, with the reason."""

    cell: MeasuredCell
    reason: str
    lost: bool  # the first side measured it, and the second tried and failed


@dataclass(frozen=True)
class Comparison:
    """Side `b` against side `a`."""

    kind: str
    a: str
    b: str
    margin: float
    rows: tuple[Contrast, ...]
    unpaired: tuple[Unpaired, ...]

    @property
    def exit_code(self) -> int:
        """0: nothing is slower. 1: something is slower or no longer runs. 2: the data cannot tell for some row."""
        if any(row.slower for row in self.rows) or any(cell.lost for cell in self.unpaired):
            return 1
        return 2 if not self.rows or any(row.verdict == "cannot tell" for row in self.rows) else 0

    @property
    def summary(self) -> str:
        """One sentence that counts the verdicts."""
        count = {word: sum(row.verdict == word for row in self.rows) for word in ("noise", "cannot tell")}
        slower = sum(row.slower for row in self.rows)
        faster = len(self.rows) - sum(count.values()) - slower
        lost = sum(cell.lost for cell in self.unpaired)
        parts = [
            (slower, "slower"),
            (faster, "faster"),
            (count["noise"], "noise"),
            (count["cannot tell"], "undecided"),
            (lost, "no longer measured"),
        ]
        counts = listing([f"{many} {words}" for many, words in parts if many])
        return f"{plural(len(self.rows), 'cell')} compared" + (f": {counts}." if counts else ".")


def comparison(tables: Tables, a: str, b: str, by: str | None = None, margin: float = MARGIN) -> Comparison:
    """Compare what `b` names with what `a` names. Raises CompareError where one does not exist or no cells match.

    Without `by`, the kind is the first of run, image, gpu and cuda that has both words.
    """
    if a == b:
        raise CompareError(f"both sides are {a!r}; name two")
    kind = _kind(tables.cells, a, b, by)
    left_cells, right_cells = (_cells(kind, tables.cells, word) for word in (a, b))
    left, right = _matched(kind, left_cells, right_cells)
    fit_left, fit_right = _measured(left), _measured(right)
    shared = [match for match in fit_left if match in fit_right]
    pairs = [(Side(tuple(fit_left[match])), Side(tuple(fit_right[match]))) for match in shared]
    return Comparison(kind.name, a, b, margin, contrasts(pairs, margin), tuple(_unpaired(left, right, a, b)))


Matched = dict[Match, list[MeasuredCell]]


def _kind(cells: Sequence[MeasuredCell], a: str, b: str, by: str | None) -> Kind:
    kinds = [KINDS[by]] if by else list(KINDS.values())
    for kind in kinds:
        if all(any(_means(kind, cell, word) for cell in cells) for word in (a, b)):
            return kind
    names = {kind.name: sorted({word for cell in cells for word in kind.words(cell)}) for kind in kinds}
    choices = "; ".join(f"{name}: {', '.join(words) or 'none'}" for name, words in names.items())
    raise CompareError(f"{a!r} and {b!r} do not name two things of one kind; these runs have {choices}")


def _means(kind: Kind, cell: MeasuredCell, word: str) -> bool:
    """Whether `word` names the cell. A part of the model's name is enough for a device."""
    if word in kind.words(cell):
        return True
    return kind.name == "gpu" and word.casefold() in cell.key.device_model.casefold()


def _cells(kind: Kind, cells: Iterable[MeasuredCell], word: str) -> list[MeasuredCell]:
    chosen = [cell for cell in cells if _means(kind, cell, word)]
    models = sorted({cell.key.device_model for cell in chosen})
    if kind.name == "gpu" and len(models) > 1:
        raise CompareError(f"{word!r} is part of several devices' names: {listing(models)}; give one whole name")
    return chosen


def _matched(kind: Kind, left: Sequence[MeasuredCell], right: Sequence[MeasuredCell]) -> tuple[Matched, Matched]:
    of_left, of_right = _by(kind.match, left), _by(kind.match, right)
    if kind.loose is None or of_left.keys() & of_right.keys():
        return of_left, of_right
    return _by(kind.loose, _named_after(left)), _by(kind.loose, _named_after(right))


def _by(match: Callable[[MeasuredCell], Match], cells: Iterable[MeasuredCell]) -> Matched:
    matched: Matched = {}
    for cell in cells:
        same = matched.setdefault(match(cell), [])
        if any((other.image, other.framework) != (cell.image, cell.framework) for other in same):
            images = sorted({f"{other.image} ({other.framework})" for other in (*same, cell)})
            raise CompareError(f"one side has several images: {listing(images)}; compare two images by name instead")
        same.append(cell)
    return matched


def _named_after(cells: Sequence[MeasuredCell]) -> Sequence[MeasuredCell]:
    """Of an image that serves several frameworks, the cells of the framework that it is named after."""
    own = [cell for cell in cells if cell.image.replace("-", "_").startswith(cell.framework + "_")]
    return own or cells


def _measured(side: Mapping[Match, Sequence[MeasuredCell]]) -> Matched:
    fit = {match: [cell for cell in cells if not cell.unranked] for match, cells in side.items()}
    return {match: cells for match, cells in fit.items() if cells}


def _unpaired(left: Matched, right: Matched, a: str, b: str) -> Iterable[Unpaired]:
    fit_left, fit_right = _measured(left), _measured(right)
    for match, cells in left.items():
        if match in fit_left and match not in fit_right:
            tried = right.get(match)
            reason = f"in {b}: {tried[0].unranked}" if tried else f"not in {b}"
            yield Unpaired(cells[0], reason, lost=bool(tried))
        elif match not in fit_left:
            yield Unpaired(cells[0], f"in {a}: {cells[0].unranked}", lost=False)
    for match, cells in right.items():
        if match not in left:
            yield Unpaired(cells[0], f"not in {a}", lost=False)


def table(comparison: Comparison) -> export.Table:
    """The comparison as people read it."""

    def other_differences(row: Contrast) -> str:
        return "; ".join(str(fact) for fact in row.differences if fact.name != "image" or comparison.kind != "image")

    sides = export.contrast_columns(comparison.a, comparison.b)
    columns = (*export.CELL, *sides, export.Column("what else differs", other_differences, narrows=True))
    return export.table(columns, comparison.rows)


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
        "exit_code": comparison.exit_code,
        "summary": comparison.summary,
        "rows": records(comparison),
        "unpaired": [
            {column.head: column.of(cell) for column in export.CELL} | {"reason": cell.reason, "lost": cell.lost}
            for cell in comparison.unpaired
        ],
    }


def remarks(comparison: Comparison) -> list[str]:
    """The lines under the table: the count of verdicts, and each cell that has no partner, with the reason."""
    missed = [
        f"not compared: {visible(cell.cell.name, 80)}, {visible(cell.cell.key.workload, 80)}: {visible(cell.reason, 200)}"
        for cell in comparison.unpaired
    ]
    return [f"{visible(comparison.b, 80)} against {visible(comparison.a, 80)}: {comparison.summary}", *missed]


def markdown(comparison: Comparison) -> str:
    """The comparison for a pull request."""
    said, *missed = (export.escaped(line, 400) for line in remarks(comparison))
    lines = [f"**{said}**", ""]
    lines += [export.markdown(table(comparison)), "", METHOD, ""] if comparison.rows else []
    return "\n".join([*lines, *(f"- {line}" for line in missed)]).rstrip() + "\n"
