"""The results of a kit as one archive: facts.json, a file a step, and manifest.json with the digest of every file.

A cell that has ended is a parcel, as in every run. Of a check the file is a small document.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.errors import naming
from runner.kit.steps import CELL, KitStep
from runner.results.parcel import ENDING

# Of the archive's layout. Version 1 had four files a step.
VERSION = 2

ARCHIVE = "gpu-kit-results.tar.gz"
MANIFEST = "manifest.json"

# Of the files of all steps.
MOST_BYTES = 480 * 2**20


def path_of(out: Path, step: KitStep) -> Path:
    """The file of a step. It is written last: the step is done when it is there."""
    return out / "steps" / f"{step.name}{ENDING if step.kind == CELL else '.json'}"


def said_path(out: Path, step: KitStep) -> Path:
    """The outcome of a step that is done, for the summary; it stays here."""
    return out / "steps" / f"{step.name}.said"


def is_begun(out: Path) -> bool:
    """True if a step has ended in this folder, also of an older kit. Before one has, nothing is lost by beginning anew."""
    ended = (f"*{ENDING}", "*.json", "*/step.json")
    return (out / "facts.json").exists() and any(any((out / "steps").glob(pattern)) for pattern in ended)


def size(out: Path) -> int:
    """How many bytes the files of the steps have."""
    return sum(path.stat().st_size for path in (out / "steps").iterdir() if path.suffix in (ENDING, ".json"))


def write(path: Path, content: bytes) -> None:
    """Write a file aside and rename it: a reader sees all of it or none."""
    aside = path.with_name(f".{path.name}.part")
    with naming(path), open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def pack(out: Path, done: Sequence[KitStep]) -> tuple[Path, str]:
    """Pack what was done so far: the archive, and its sha256 (hex)."""
    paths = [out / "facts.json", *(path_of(out, step) for step in done)]
    path = out / ARCHIVE
    write(path, packed({each.relative_to(out).as_posix(): each.read_bytes() for each in paths}))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def packed(files: dict[str, bytes]) -> bytes:
    """These files with their manifest as a .tar.gz: the same bytes for the same files."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = json.dumps({"kit": VERSION, "files": digests}, indent=1, sort_keys=True).encode()
    buffer = io.BytesIO()
    # Without a time in its header.
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        for name, content in [(MANIFEST, manifest), *sorted(files.items())]:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def document(value: Any, indent: int | None = None) -> bytes:
    """A document. A path that is not UTF-8 would not be read again: question marks stand for such characters."""
    return json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
