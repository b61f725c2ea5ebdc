"""The folders of a collection of references: contributor / device model / image / workload / a bundle that its content names.

The account that brought a bundle is the first folder, which a judge holds against the account that asks. It may be left out: then nobody
knows who brought it, and all such bundles are one contributor's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from runner import trees
from runner.kit.contribution.run_facts import RunFacts, SharedCell
from runner.kit.contribution.shared_run import Bundle
from runner.results.datasheets import bare_model

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
