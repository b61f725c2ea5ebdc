"""Judges bundles that somebody brings to a collection: by themselves, and beside what is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from reports.answers.export import escaped, in_a_comment
from reports.wording import apart, times
from runner.admission.sets import KnownNoises
from runner.catalog.images import load_catalog
from runner.errors import UserError
from runner.results.statistics import of_kind
from runner.text import in_a_line, number, plural
from runner.verify.outliers import spread_of
from runner.verify.references.contributed import derived_rows, site
from runner.verify.references.contributed.derived_rows import BundleRow, Derived, derived
from runner.verify.verdict import MARGINS

Verdict = Literal["accepted", "open", "refused"]

# Beside fewer machines there is no spread to compare with, and one of two is as likely the wrong one. What is accepted must never widen
# what is accepted next, so nothing is accepted beyond MOST, whatever the spread. The number is chosen, not measured: machines of one model
# differ by less.
FEWEST_BESIDE = 3
MOST = 1.15

# A machine whose step time is so far from the median of the others is looked at by a person: beyond twice the margin of a verdict, and
# beyond so many deviations of the others. tests/unit/runner/verify/test_contributed.py simulates how often a healthy one is.
_DEVIATIONS = 5.0


@dataclass(frozen=True)
class CellJudgement:
    """One cell of a bundle, beside the machines that are there."""

    row: BundleRow
    machines: int
    # Its step time over the median of the others, and the most that is accepted without a look. None: there are no others.
    ratio: float | None = None
    most: float | None = None

    @property
    def far(self) -> str:
        """Why a person must look at it; empty where nobody must."""
        if self.ratio is None or self.most is None or 1 / self.most <= self.ratio <= self.most:
            return ""
        return (
            f"{self.row.facts.name}: a step {apart(self.ratio)} as the median of "
            f"{plural(self.machines, 'machine')}, "
            f"and {times(self.most)} times is the most that is accepted without a look: a person decides"
        )


@dataclass(frozen=True)
class Judgement:
    """A bundle's verdict, with every reason against it."""

    name: str
    verdict: Verdict
    reasons: tuple[str, ...]
    cells: tuple[CellJudgement, ...] = ()


class BundleJudge:
    """Judges bundles one after another: one that was accepted counts as there for the next."""

    def __init__(self, there: Mapping[str, Derived], brought: bool = False, contributor: str | None = None) -> None:
        """`there`: bundles by their places. `brought`: those to judge are new, and a person looks at what nobody has vouched for.

        `contributor`: the account that brings them, where it is known.
        """
        self._brought, self._contributor = brought, contributor and derived_rows.account_folder(contributor)
        # Contributor -> the machines that he has there.
        self._machines: dict[str, set[str]] = {}
        self._shapes: dict[str, str] = {}
        # Digest -> the image that has it, and who says so.
        self._digests = _published()
        self._starts: dict[float, str] = {}
        self._noises = KnownNoises()
        self._rows: dict[str, list[BundleRow]] = {}
        for place, bundle in there.items():
            self._add(place, bundle)

    def _add(self, place: str, bundle: Derived) -> None:
        """Hold others against it."""
        self._remember(place, bundle)
        for row in bundle.rows:
            self._rows.setdefault(site.cell_id(row.facts), []).append(row)
            self._machines.setdefault(row.contributor, set()).add(row.machine)

    def _remember(self, place: str, bundle: Derived) -> None:
        """Know its repeats again. One that waits for a person is remembered, too: a request may hold a copy of it."""
        for row in bundle.rows:
            self._shapes |= dict.fromkeys(row.shapes, place)
            self._starts |= dict.fromkeys(row.starts, place)
            for noise in row.noises:
                self._noises.add(noise, place)
            if row.image_digest:
                self._digests[row.image_digest] = _image(row), place

    def judge(self, path: Path, place: str) -> Judgement:
        """`place`: where the bundle lies in the collection."""
        try:
            bundle = derived(path)
        except UserError as error:
            return Judgement(place, "refused", (in_a_line(str(error).replace(str(path), place), 900),))
        return self.judged(bundle.by(derived_rows.parted(place)[0]), place)

    def judged(self, bundle: Derived, place: str) -> Judgement:
        """The same of the rows of a bundle, which know their contributor."""
        refused = [*bundle.refused, *self._misplaced(bundle, place), *self._copied(bundle), *self._other_digest(bundle)]
        cells = tuple(map(self._beside, bundle.rows))
        far = (
            []
            if refused
            else [*(cell.far for cell in cells if cell.far), *(self._new(bundle) if self._brought else ())]
        )
        verdict: Verdict = "refused" if refused else "open" if far else "accepted"
        if verdict != "refused":
            (self._add if verdict == "accepted" else self._remember)(place, bundle)
        return Judgement(place, verdict, (*refused, *far), cells)

    def _misplaced(self, bundle: Derived, place: str) -> list[str]:
        contributor, rest = derived_rows.parted(place)
        account = self._contributor
        if account is not None and contributor != account:
            return [
                f"it lies at {place}, and what {account} brings belongs into {account}/: `runner share --by {account}`"
            ]
        if bundle.place == rest:
            return []
        right = bundle.place or "a folder for each device model, image and workload"
        return [
            f"it lies at {place}, and what it holds belongs into {right}: `runner share RUN -o COLLECTION` puts it there"
        ]

    def _new(self, bundle: Derived) -> list[str]:
        """Why a person must look at it, since nobody has vouched for its contributor, its machine or its cell."""
        contributor, machine = bundle.rows[0].contributor, bundle.rows[0].machine
        known = self._machines.get(contributor, set())
        who = contributor or "an unknown contributor"
        reasons = []
        if not known:
            reasons.append(f"it is the first bundle of {who}: a person decides")
        elif machine not in known:
            reasons.append(f"{who} has {plural(len(known), 'machine')} here, and this is another one: a person decides")
        if same := sorted(one for one, has in self._machines.items() if machine in has and one != contributor):
            reasons.append(f"its machine has the pseudonym of a machine of {', '.join(same[:5])}: a person decides")
        first = [row.facts.name for row in bundle.rows if site.cell_id(row.facts) not in self._rows]
        if first:
            reasons.append(f"nothing is here to hold it against: {', '.join(first[:5])}: a person decides")
        return reasons

    def _copied(self, bundle: Derived) -> list[str]:
        """The reason if any repeat has the windows or the telemetry of another one, or began when another one did."""
        own: set[str] = set()
        for row in bundle.rows:
            if place := next((self._starts[start] for start in row.starts if start in self._starts), None):
                # To the microsecond: two machines do not agree in that.
                return [f"{row.facts.name}: one of its repeats began at the very moment at which one of {place} did"]
            for number_, shape in enumerate(row.shapes, start=1):
                if shape in own or shape in self._shapes:
                    where = self._shapes.get(shape, "this bundle")
                    return [
                        f"{row.facts.name}: the windows of repeat {number_} are those of another one of {where}, as they are or times a "
                        "factor"
                    ]
                own.add(shape)
            for number_, noise in enumerate(row.noises, start=1):
                if copied := self._noises.copied_by(noise):
                    return [f"{row.facts.name}: repeat {number_} was not measured: {' one of '.join(copied)}"]
        return []

    def _other_digest(self, bundle: Derived) -> list[str]:
        """The reason if the digest of an image is known as that of another one."""
        known = dict(self._digests)
        for row in bundle.rows:
            # An image that was built here and never pushed has no digest.
            (image, lock), where = known.setdefault(row.image_digest, (_image(row), "this bundle"))
            if row.image_digest and (image, lock) != _image(row):
                return [f"its image {row.facts.image} has the digest of {image}, by {where}"]
        return []

    def _beside(self, row: BundleRow) -> CellJudgement:
        """A row beside the other machines of its cell."""
        # An account may give its machine any pseudonym, so this is asked only where nobody knows who brought what.
        apart = "contributor" if row.contributor else "machine"
        own = getattr(row, apart)
        alike = site.index_of(one for one in self._rows.get(site.cell_id(row.facts), ()) if getattr(one, apart) != own)
        logs = alike[0].logs if alike else ()
        if not logs:
            return CellJudgement(row, 0)
        most = math.log(MOST)
        if len(logs) >= FEWEST_BESIDE:
            healthy = max(2 * math.log1p(of_kind(MARGINS, row.facts.device_kind)), _DEVIATIONS * spread_of(logs))
            most = min(most, healthy)
        return CellJudgement(row, len(logs), math.exp(_log(row) - median(logs)), math.exp(most))


def _published() -> dict[str, tuple[tuple[str, str | None], str]]:
    """The digests of the images that this release pulls: no bundle has a say in them."""
    pinned = ((image.published.rpartition("@")[2], image) for image in load_catalog().values() if image.published)
    return {digest: ((image.name, image.lock_sha256), "the catalog") for digest, image in pinned}


def _image(row: BundleRow) -> tuple[str, str | None]:
    return row.facts.image, row.facts.lock_sha256


def _log(row: BundleRow) -> float:
    return fmean(map(math.log, row.repeats))


def besides(changes: str) -> list[str]:
    """The changes of a request beside the bundles that it adds, removals first: a sentence each. `changes`: `git diff -z --name-status`."""
    words = changes.split("\0")
    pairs = sorted(zip(words[::2], words[1::2], strict=False), key=lambda pair: (pair[0] != "D", pair))
    added = [path for status, path in pairs if status == "A" and path.endswith((derived_rows.SUFFIX, ".tgz"))]
    verbs = {"A": "adds", "D": "removes", "M": "changes", "T": "changes the kind of"}
    return [f"this request {verbs.get(status, 'changes')} {path}" for status, path in pairs if path not in added]


def comment(judgements: Sequence[Judgement], also: Sequence[str] = ()) -> str:
    """The judgements as the comment of a pull request. `also`: what it changes besides, which stands first."""
    counts = {verdict: sum(one.verdict == verdict for one in judgements) for verdict in ("accepted", "open", "refused")}
    lines = [
        f"### References: {', '.join(f'{count} {verdict}' for verdict, count in counts.items() if count) or 'no bundle'}",
        "",
        *(f"- **open**: {escaped(in_a_line(one, 300))}: a person decides" for one in also),
        *([""] if also else []),
        "Every tape was admitted anew: parity, arrivals, telemetry and the image's lock, as for a cell of one's own machine. "
        "All that was accepted is published under the licence of this repository.",
        "",
    ]
    # Before the table, which may be cut.
    lines += [
        f"- **{one.verdict}**: {escaped(one.name)}: {escaped(why, 900)}" for one in judgements for why in one.reasons
    ]
    if cells := [(one, cell) for one in judgements for cell in one.cells]:
        lines += ["", "| bundle | device | cell | CUDA | repeats | ms a step | beside | verdict |", "| --- " * 8 + "|"]
        lines += [f"| {' | '.join(map(escaped, _words(one, cell)))} |" for one, cell in cells]
    return in_a_comment("\n".join([*lines, ""]))


def _words(one: Judgement, cell: CellJudgement) -> tuple[str, ...]:
    row, facts = cell.row, cell.row.facts
    beside = "no machine"
    if cell.ratio is not None:
        beside = f"{cell.ratio:.3f} × the median of {plural(cell.machines, 'machine')}"
    return (
        one.name.rpartition("/")[2],
        facts.device_model,
        f"{facts.name} [{facts.image}]",
        facts.cuda_version or "–",
        str(len(row.repeats)),
        number(1e3 * math.exp(_log(row)), 4),
        beside,
        one.verdict,
    )


# A folder of bundles: the judge of some of them beside the others, and the rows of all.


def judge(
    collection: Path, bundles: Sequence[Path], say: Callable[[str], None], contributor: str | None = None
) -> list[Judgement]:
    """The judgements of these bundles beside the others; without any, of each bundle beside those before it. Raises UserError.

    `contributor`: the account that brings them, if it is known; then they must lie in its folder.
    """
    places = {_place(collection, path): path for path in bundles or derived_rows.bundles_in(collection)}
    there = admitted(collection, say, set(places)) if bundles else {}
    judge_ = BundleJudge(there, brought=bool(bundles), contributor=contributor)
    return [judge_.judge(path, place) for place, path in places.items()]


def admitted(collection: Path, say: Callable[[str], None], without: Collection[str] = ()) -> Mapping[str, Derived]:
    """The bundles of a collection by their places. One that is refused is skipped, and `say` hears why."""
    bundles: dict[str, Derived] = {}
    for path in derived_rows.bundles_in(collection):
        place = _place(collection, path)
        if place in without:
            continue
        try:
            bundle = derived(path)
        except UserError as error:
            say(f"skipped: {error}")
            continue
        contributor, rest = derived_rows.parted(place)
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
