"""The highlighted code of a workload, kept beside Python's own compiled modules: to make it takes longer than to write a small page."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pygments

from reports.page import compiled, helpers, rosetta_stone
from runner import text


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


def listing(workload: str, framework: str, code_sha256: str) -> SourceListing:
    """The code of a framework that has the workload. `code_sha256`: the digest of all that its cell runs (bench.identity)."""
    path = compiled.folder() / f"code-{workload}-{framework}.{sys.implementation.cache_tag}.json"
    key = _key(code_sha256)
    try:
        kept = json.loads(path.read_bytes())
        if kept["key"] == key:
            return _read(kept["listing"])
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        # It was not yet made, or by another release.
        pass
    made = _made(rosetta_stone.source(workload, framework))
    compiled.keep(path, json.dumps({"key": key, "listing": asdict(made)}).encode())
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
