"""Which cells of two sides are partners, and which have none: of two runs, images, frameworks, GPUs or CUDA versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from reports.data.model import MeasuredCell, Tables
from reports.wording import framework_name, listing
from runner.errors import UserError
from runner.results.cells import MISSING
from runner.text import visible

# The common fields of a cell and its partner: the values of the fields that its kind names.
Match = tuple[object, ...]
Matched = dict[Match, list[MeasuredCell]]


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


def has_both(tables: Tables, a: str, b: str, by: str | None = None) -> bool:
    """True if both words name something of one kind that these runs measured, or tried to."""
    try:
        kind_of([cell for cell in tables.cells if cell.status != MISSING], a, b, by)
    except CompareError:
        return False
    return True


def kind_of(cells: Sequence[MeasuredCell], a: str, b: str, by: str | None) -> Kind:
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
    """True if `word` names the cell. A part of the model's name is enough for a device."""
    if word in kind.words(cell):
        return True
    if kind.name == "image":
        return word == f"{cell.image}:{cell.framework}"
    if kind.name == "framework":
        # Images have a hyphen where frameworks have an underscore.
        names = (cell.framework.casefold(), framework_name(cell.framework).casefold())
        return word.casefold() in names or word.casefold().replace("-", "_") == names[0]
    return kind.name == "gpu" and word.casefold() in cell.key.device_model.casefold()


def cells_of(kind: Kind, cells: Iterable[MeasuredCell], word: str) -> list[MeasuredCell]:
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


def matched(
    kind: Kind, left: Sequence[MeasuredCell], right: Sequence[MeasuredCell], a: str, b: str
) -> tuple[Matched, Matched]:
    advice = _advice(kind, {a: left, b: right})
    of_left, of_right = _by(kind.match, left, advice), _by(kind.match, right, advice)
    if kind.loose is None or of_left.keys() & of_right.keys():
        return of_left, of_right
    return _by(kind.loose, _named_after(left), advice), _by(kind.loose, _named_after(right), advice)


def _advice(kind: Kind, sides: Mapping[str, Sequence[MeasuredCell]]) -> str:
    """The advice if a side has several cells that partner the same cell."""
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


def measured(side: Mapping[Match, Sequence[MeasuredCell]], other: Mapping[Match, Sequence[MeasuredCell]]) -> Matched:
    """The cells of a side whose figures may be compared with the other's. An unproved one stands beside its own framework only."""
    fit = {}
    for match, cells in side.items():
        beside = {cell.framework for cell in other.get(match, ())}
        fit[match] = [cell for cell in cells if cell.comparable and not (cell.unproved and beside - {cell.framework})]
    return {match: cells for match, cells in fit.items() if cells}


def _unfit(cell: MeasuredCell) -> bool:
    """True if a cell ended well and passed its own parity, and is not ranked for another reason."""
    return not cell.unsound and bool(cell.unranked)


def unpaired(left: Matched, right: Matched, a: str, b: str) -> Iterable[Unpaired]:
    fit_left, fit_right = measured(left, right), measured(right, left)
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
            awaited = all(cell.status == MISSING for cell in cells)
            yield Unpaired(cells[0], b, _in(b, cells[0]) if awaited else f"not in {a}", awaited=awaited)


def _in(side: str, cell: MeasuredCell) -> str:
    """Why a cell says nothing, and on which side that is."""
    return f"in {side}: {cell.unranked}"
