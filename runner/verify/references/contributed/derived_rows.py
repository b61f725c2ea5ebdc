"""The rows that a bundle gives an index: one for each cell. They are made of the tapes alone, by the one door of every measurement.

To admit a bundle takes a tenth of a second, so the rows of one that was admitted stay in the cache of this user, by the digests of the
bundle and of all that it is judged by: code, benches and locks.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import quote

import numpy as np
from pydantic import Field, ValidationError

from bench import identity
from runner import paths, text, trees
from runner.admission.admit import image_of
from runner.admission.renew import rules_digest
from runner.admission.sets import NoisePrint, Place, noises
from runner.engines.process import installed
from runner.errors import UserError
from runner.kit import archive
from runner.kit.imported import Imported, import_archive
from runner.kit.shared_run import Bundle, Pseudonym, RunFacts, SharedCell
from runner.results.cells import StoredRepeat
from runner.results.gpu_facts import bare_model
from runner.results.rows import Row
from runner.results.statistics import Array
from runner.results.store import read_bytes, tables_of, write_bytes
from runner.results.untrusted import Hash, Text
from runner.results.validate import Frozen, Moment
from runner.verify.references.facts import Facts, of_other_code
from runner.verify.references.measured import Measured, read_runs
from runner.verify.references.saved import Seconds

# The folders of a collection of references: contributor / device model / image / workload / a bundle that its content names.
#
# The account that brought a bundle is the first folder, which a judge holds against the account that asks. It may be left out: then
# nobody knows who brought it, and all such bundles are one contributor's.

SUFFIX = ".tar.gz"
_DIGITS = 16
# Folders above a bundle that follow from its content.
_DEPTH = 3


# A processor of Intel's or AMD's has a number of three digits or more in its name. What a virtual machine shows in its place has none:
# "AMD EPYC", "Intel Xeon Processor (Skylake)".
_MAKERS, _NUMBER = re.compile(r"\b(intel|amd)\b", re.IGNORECASE), re.compile(r"\d{3}")
_EMULATED = re.compile(r"\b(qemu|kvm|virtual)\b", re.IGNORECASE)


def names_a_processor(model: str) -> bool:
    """False for what a virtual machine shows in the place of its CPU's model: such names are the same for unlike processors."""
    hidden = _MAKERS.search(model) and not _NUMBER.search(model)
    return not hidden and not _EMULATED.search(model)


def slug(name: str) -> str:
    """A name as that of a folder: small letters, digits, points and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:100] or "unnamed"


def account_folder(name: str) -> str:
    """The folder of an account. No two accounts share one: `a_b` and `a-b` are two on GitHub, and anybody may register the second."""
    return quote(name.lower(), safe="").replace(".", "%2E")


def folder_of(device_model: str, image: str, workload: str) -> PurePosixPath:
    return PurePosixPath(slug(bare_model(device_model)), slug(image), slug(workload))


def _folder(shared: SharedCell) -> PurePosixPath:
    return folder_of(shared.cell.device_model, shared.cell.image, shared.cell.workload)


def place_of(facts: RunFacts, sha256: str) -> PurePosixPath | None:
    """The place of a bundle in a collection, by its content; None where its cells belong into several folders."""
    folders = {_folder(shared) for shared in facts.planned}
    return folders.pop() / f"{sha256[:_DIGITS]}{SUFFIX}" if len(folders) == 1 else None


def parted(place: str) -> tuple[str, str]:
    """(contributor, the place that follows from the content) of a path in a collection."""
    contributor, _, rest = place.partition("/")
    return (contributor, rest) if place.count("/") == _DEPTH + 1 else ("", place)


def files_of(bundle: Bundle, contributor: str = "") -> dict[PurePosixPath, bytes]:
    """The bundles of a run for a collection: one for each of its folders."""
    top = PurePosixPath(account_folder(contributor) if contributor else "")
    parts: dict[PurePosixPath, list[SharedCell]] = {}
    for shared in bundle.facts.planned:
        parts.setdefault(_folder(shared), []).append(shared)
    contents = [(folder, bundle.of_cells(cells).content) for folder, cells in parts.items()]
    return {
        top / folder / f"{hashlib.sha256(content).hexdigest()[:_DIGITS]}{SUFFIX}": content
        for folder, content in contents
    }


def bundles_in(collection: Path) -> Iterator[Path]:
    """The bundles of a collection in their order, and what lies elsewhere in it and is named as one. Hidden names are not of it."""
    found = (path.relative_to(collection) for path in trees.files(collection) if path.name.endswith((SUFFIX, ".tgz")))
    yield from (collection / path for path in sorted(found) if not any(part.startswith(".") for part in path.parts))


# As many as a kit and `make matrix` measure. One repeat does not show how far repeats differ, and two do not show which of them is off.
FEWEST_REPEATS = 3

# Of the numbers that stand for a repeat's windows, whatever factor all were multiplied with: so many digits survive the rounding.
_SHAPE_DIGITS = 6

# Beside the rules of admission.
_JUDGED_BY = ("runner/verify/references/contributed", "runner/kit", "bench", "images")
_JUDGING = (".py", ".jl", ".R", ".toml", ".lock")

_MOST_CACHED_BYTES = 64 << 20
_MOST_NAMED = 5


class BundleRow(Frozen):
    """One cell of one bundle: its facts, its repeats' medians, and what tells it from another measurement."""

    facts: Facts
    machine: Pseudonym
    # The GPU's pseudonym. Empty: a CPU.
    device: Text
    created: Moment
    image_digest: Text
    # Seconds a step.
    repeats: Annotated[tuple[Seconds, ...], Field(min_length=1, max_length=1000)]
    # Of each repeat: equal where its windows are those of another one times a factor.
    shapes: tuple[Text, ...]
    # Of each repeat: what it has by chance, and a copy as well.
    noises: Annotated[tuple[NoisePrint, ...], Field(max_length=1000)] = ()
    # When each repeat began, in seconds since 1970.
    starts: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]
    # The account that brought it: the folder in which it lies. A pseudonym is free, so it never stands for a contributor. Empty: unknown.
    contributor: Text = ""


class Derived(Frozen):
    """A bundle's rows, and the reasons for which it is refused whatever else the collection holds."""

    sha256: Hash
    # Its place in a collection, by its content. Empty: it belongs into none.
    place: Annotated[str, Field(max_length=400)]
    rows: tuple[BundleRow, ...]
    refused: Annotated[tuple[Annotated[str, Field(max_length=1000)], ...], Field(max_length=1000)] = ()

    def by(self, contributor: str) -> Derived:
        """The same as this account brought it."""
        rows = tuple(row.model_copy(update={"contributor": contributor}) for row in self.rows)
        return self.model_copy(update={"rows": rows})


def derived(path: Path) -> Derived:
    """The rows of a bundle. Raises UserError for a file that is no bundle."""
    if path.is_symlink():
        raise archive.ArchiveError(f"{path} is a link; bring the bundle itself")
    bundle = archive.read(path)
    # The newest rules judge: what they refuse is refused in an old bundle as well.
    cached = paths.cache_folder() / "contributed" / f"{bundle.sha256}-{judges_digest()[:16]}.json"
    try:
        return Derived.model_validate_json(read_bytes(cached, _MOST_CACHED_BYTES))
    except (OSError, ValidationError):
        made = _made(bundle)
    write_bytes(cached, made.model_dump_json().encode())
    return made


@functools.cache
def judges_digest() -> str:
    """The digest of all that decides on a bundle."""
    found = (file for place in _JUDGED_BY for file in trees.files(paths.PROJECT / place) if file.suffix in _JUDGING)
    names = {file.relative_to(paths.PROJECT).as_posix() for file in found}
    return hashlib.sha256(f"{rules_digest()} {identity.digest(names, str(paths.PROJECT))}".encode()).hexdigest()


def _made(bundle: archive.Archive) -> Derived:
    facts = bundle.facts
    if not isinstance(facts, RunFacts):
        raise archive.ArchiveError(
            f"{bundle.path} is a kit's archive, which has names: `runner import` it, and `runner share` the run"
        )
    place = place_of(facts, bundle.sha256)
    with tempfile.TemporaryDirectory(prefix="dlbench-bundle-") as folder:
        try:
            imported = import_archive(bundle, Path(folder))
        except UserError as error:
            # The path of the bundle says nothing of what it holds.
            why = str(error).removeprefix(f"{bundle.path}").lstrip(": ")
            return Derived(sha256=bundle.sha256, place=str(place or ""), rows=(), refused=(text.in_a_line(why, 900),))
        measured = read_runs([imported.run.folder])
        by_chance = noises(tables_of([imported.run.folder], ("samples", "telemetry")))
    refused = [*_of_bundle(facts, imported), *(why for cell in measured for why in _of_cell(cell))]
    rows = [_row(facts, cell, by_chance) for cell in measured if cell.repeats]
    shown = tuple(text.in_a_line(why, 900) for why in refused[:1000])
    return Derived(sha256=bundle.sha256, place=str(place or ""), rows=tuple(rows), refused=shown)


def _of_bundle(facts: RunFacts, imported: Imported) -> Iterator[str]:
    """The reasons against a bundle as a whole."""
    if facts.data_given:
        yield "it was measured on data that its owner gave; references are of generated data, which everybody has"
    failed = [f"{each.step}: {each.reason}" for each in imported.outcomes if each.status != "ok"]
    for why in (*imported.dropped, *failed)[:_MOST_NAMED]:
        yield f"not admitted: {why}"
    if imported.not_done:
        yield f"{text.plural(imported.not_done, 'parcel')} that facts.json names cannot be read or are not in it"
    for old in of_other_code([(each.cell.framework, each.cell.workload, each.code_sha256) for each in facts.planned]):
        yield f"{old} ran other code than this release has; measure with this release"
    for shared in facts.planned:
        cell = shared.cell
        if not cell.image.startswith("host-") and image_of(cell) is None:
            yield f"{cell.image}: the lock that was measured is not that of this release's image"


def _of_cell(measured: Measured) -> Iterator[str]:
    """The reasons against one cell."""
    cell, facts = measured.cell, measured.facts
    name = f"{facts.name} [{facts.image}]"
    if len(measured.repeats) < FEWEST_REPEATS:
        yield f"{name}: {text.plural(len(measured.repeats), 'repeat')} with enough windows; a reference needs {FEWEST_REPEATS}"
    if held := sum(bool(repeat.row.get("throttled")) for repeat in cell.repeats):
        yield f"{name}: the GPU was throttled in {held} of {text.plural(len(cell.repeats), 'repeat')}; cool it, and measure again"
    if facts.device_kind == "cuda" and any(map(_untold, cell.measured)):
        yield (
            f"{name}: its telemetry does not tell of all its windows whether the GPU was throttled, and what energy it took; measure where "
            "NVML says both"
        )
    if any(_at_once(*pair) for pair in itertools.combinations(cell.repeats, 2)):
        yield f"{name}: two of its repeats ran at one time on one device, by their clocks; bring repeats as they were measured"
    if facts.device_kind == "cpu" and not names_a_processor(facts.device_model):
        yield (
            f"{name}: {facts.device_model!r} is the name of many processors: a virtual machine hides which it has; measure on the machine "
            "itself, or let the virtual machine show its host's CPU"
        )
    if facts.device_kind == "cpu" and any(repeat.row.get("other_cpus") is None for repeat in cell.measured):
        yield f"{name}: its telemetry does not say what other work took beside it; measure with psutil installed"
    if taken := cell.other_work:
        yield f"{name}: {taken}; end it, and measure again"
    if cell.too_noisy:
        yield f"{name}: too noisy to be ranked; end what else runs on the machine, and measure again"
    if len({repeat.row.get("image_digest") for repeat in cell.repeats}) > 1:
        yield f"{name}: its repeats ran in images of different digests"
    if facts.image.startswith("host-"):
        own = installed.image_name(facts.framework, facts.framework_version or "")
        if facts.image != own:
            yield f"{name}: the framework says version {facts.framework_version}, whose image would be {own}"


def _untold(repeat: StoredRepeat) -> bool:
    """True where a GPU's telemetry does not reach over the windows, or lacks what a throttled GPU is told by."""
    return repeat.row.get("throttled") is None or repeat.row.get("energy_joules") is None


def _at_once(one: StoredRepeat, other: StoredRepeat) -> bool:
    """True if a repeat of a cell began before the proof of another one had ended, on one device."""
    first, second = sorted((one, other), key=lambda repeat: repeat.began)
    # How long its process lived has the time in it that its engine took to start it, and that was before it began.
    last_window = float(np.max(first.windows.begin + first.windows.seconds, initial=0.0))
    lasted = last_window + float(first.row.get("proof_seconds") or 0.0)
    return _device(first.row) == _device(second.row) and first.began + lasted > second.began


def _device(row: Row) -> str:
    """The GPU's pseudonym. Empty: a CPU."""
    uuids = row.get("device_uuids")
    return str(uuids[0]) if uuids is not None and len(uuids) else ""


def _row(facts: RunFacts, measured: Measured, by_chance: Mapping[Place, NoisePrint]) -> BundleRow:
    row = measured.cell.row
    return BundleRow(
        facts=measured.facts,
        machine=facts.machine,
        device=_device(row),
        created=facts.created,
        image_digest=str(row.get("image_digest") or "")[:300],
        repeats=tuple(measured.levels.values()),
        shapes=tuple(map(_shape, measured.repeats)),
        noises=tuple(by_chance.get((measured.cell.cell_id, number), NoisePrint()) for number in measured.by_number),
        starts=tuple(repeat.began for repeat in measured.cell.repeats),
    )


def _shape(seconds: Array) -> str:
    """A digest of a repeat's windows relative to their median."""
    relative = " ".join(f"{each:.{_SHAPE_DIGITS}g}" for each in seconds / np.median(seconds))
    return hashlib.sha256(relative.encode()).hexdigest()[:16]
