"""A folder of bundles: the judge of some of them beside the others, and the rows of all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from runner.errors import UserError
from runner.verify.references.contributed import layout
from runner.verify.references.contributed.derived_rows import Derived, derived
from runner.verify.references.contributed.judge import BundleJudge, Judgement


def judge(
    collection: Path, bundles: Sequence[Path], say: Callable[[str], None], contributor: str | None = None
) -> list[Judgement]:
    """The judgements of these bundles beside the others; without any, of each bundle beside those before it. Raises UserError.

    `contributor`: the account that brings them, if it is known; then they must lie in its folder.
    """
    places = {_place(collection, path): path for path in bundles or layout.bundles_in(collection)}
    there = admitted(collection, say, set(places)) if bundles else {}
    judge_ = BundleJudge(there, brought=bool(bundles), contributor=contributor)
    return [judge_.judge(path, place) for place, path in places.items()]


def admitted(collection: Path, say: Callable[[str], None], without: Collection[str] = ()) -> Mapping[str, Derived]:
    """The bundles of a collection by their places. One that is refused is skipped, and `say` hears why."""
    bundles: dict[str, Derived] = {}
    for path in layout.bundles_in(collection):
        place = _place(collection, path)
        if place in without:
            continue
        try:
            bundle = derived(path)
        except UserError as error:
            say(f"skipped: {error}")
            continue
        contributor, rest = layout.parted(place)
        refused = bundle.refused or (() if bundle.place == rest else (f"it belongs to {bundle.place}",))
        if refused:
            say(f"skipped: {place}: {refused[0]}")
        else:
            bundles[place] = bundle.by(contributor)
    return bundles


def _place(collection: Path, path: Path) -> str:
    """The path of a bundle in a collection; of a link, its own. Raises UserError for a bundle that is in no collection."""
    try:
        return (path.parent.resolve() / path.name).relative_to(collection.resolve()).as_posix()
    except ValueError:
        raise UserError(
            f"{path} is not in {collection}; `runner share RUN -o {collection}` puts a run's bundles there"
        ) from None
