"""The compiled templates and the highlighted code, which take longer to make than a small page: kept beside Python's compiled modules."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import jinja2
import pygments
from jinja2.bccache import Bucket, BytecodeCache

from bench import identity
from reports.data.model import MeasuredWorkload
from reports.page import rosetta_stone
from reports.page import rosetta_stone as helpers
from runner import text


def folder() -> Path:
    """The folder in which Python keeps the compiled modules of this folder."""
    return Path(cache_from_source(__file__)).parent


def keep(path: Path, data: bytes) -> None:
    """Write a file of `folder`. As with a module, nothing is kept where Python keeps nothing, or where this user may not write."""
    if sys.dont_write_bytecode:
        return
    aside = path.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_bytes(data)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


class Compiled(BytecodeCache):
    """A file a template. Each is made anew where its template changed, or one of `sources`, which say how templates are compiled."""

    def __init__(self, sources: Iterable[str]) -> None:
        # Python may be without its sources.
        known = [Path(source).read_bytes() for source in sources if Path(source).is_file()]
        self._digest = hashlib.sha256(b"\0".join([jinja2.__version__.encode(), *known])).hexdigest()[:16]

    def _path(self, bucket: Bucket) -> Path:
        return folder() / f"template-{bucket.key}-{self._digest}.{sys.implementation.cache_tag}.bin"

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError), open(self._path(bucket), "rb") as file:
            # It takes none that another Python made, or that is of another template.
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        keep(self._path(bucket), bucket.bytecode_to_string())


@dataclass(frozen=True)
class Helper:
    """The part of another file that a framework's file uses, as HTML."""

    path: str
    highlighted: str


@dataclass(frozen=True)
class SourceListing:
    """One framework's file for a workload, as HTML."""

    title: str
    path: str
    lesson: str
    highlighted: str
    helpers: tuple[Helper, ...]


def listings(workload: MeasuredWorkload) -> tuple[SourceListing, ...]:
    """The code that measured a workload's cells, a file a framework: only where it is this checkout's."""
    cells = [cell for group in workload.groups for cell in group.cells]
    frameworks = rosetta_stone.with_code(workload.name, {cell.framework for cell in cells})
    here = identity.code_digests({(framework, workload.name) for framework in frameworks})
    ran = {(cell.framework, cell.row.get("code_sha256")) for cell in cells}
    digests = {framework: here[framework, workload.name] for framework in frameworks}
    return tuple(listing(workload.name, name, digest) for name, digest in digests.items() if (name, digest) in ran)


def listing(workload: str, framework: str, code_sha256: str) -> SourceListing:
    """The code of a framework that has the workload. `code_sha256`: the digest of all that its cell runs (bench.identity)."""
    path = folder() / f"code-{workload}-{framework}.{sys.implementation.cache_tag}.json"
    key = _key(code_sha256)
    try:
        kept = json.loads(path.read_bytes())
        if kept["key"] == key:
            return _read(kept["listing"])
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        # It was not yet made, or by another release.
        pass
    made = _made(rosetta_stone.source(workload, framework))
    keep(path, json.dumps({"key": key, "listing": asdict(made)}).encode())
    return made


def _read(stored: dict[str, Any]) -> SourceListing:
    return SourceListing(**{**stored, "helpers": tuple(Helper(**helper) for helper in stored["helpers"])})


def _made(source: rosetta_stone.Source) -> SourceListing:
    shown = tuple(Helper(helper.path, helper.highlighted) for helper in source.helpers)
    return SourceListing(source.title, source.path, source.lesson, source.highlighted, shown)


def _key(code_sha256: str) -> str:
    """Another where the code is another, or what makes the listing of it."""
    # Python may be without its sources.
    files = [Path(file) for file in (__file__, rosetta_stone.__file__, helpers.__file__, text.__file__)]
    made_by = [file.read_bytes() for file in files if file.is_file()]
    return hashlib.sha256(b"\0".join([code_sha256.encode(), pygments.__version__.encode(), *made_by])).hexdigest()
