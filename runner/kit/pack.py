"""The results of a kit as one archive: facts.json, a folder a step, and manifest.json with the digest of every file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

# Of the archive's layout.
VERSION = 1

ARCHIVE = "gpu-kit-results.tar.gz"
MANIFEST = "manifest.json"

# The files of a step.
FILES = ("step.json", "output", "telemetry.jsonl", "log.txt")


def is_done(out: Path, name: str) -> bool:
    """True if a step has ended: its step.json is written last."""
    return (out / "steps" / name / "step.json").is_file()


def is_begun(out: Path) -> bool:
    """True if a step has ended in this folder. Before one has, nothing is lost by beginning anew."""
    return (out / "facts.json").exists() and any((out / "steps").glob("*/step.json"))


def write(path: Path, content: bytes) -> None:
    """Write a file aside and rename it: a reader sees all of it or none."""
    aside = path.with_name(f".{path.name}.part")
    with open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def pack(out: Path) -> tuple[Path, str]:
    """Pack what was done so far: the archive, and its sha256 (hex)."""
    steps = sorted(path.name for path in (out / "steps").iterdir() if is_done(out, path.name))
    files = {"facts.json": (out / "facts.json").read_bytes()}
    files |= {f"steps/{step}/{name}": (out / "steps" / step / name).read_bytes() for step in steps for name in FILES}
    path = out / ARCHIVE
    write(path, packed(files))
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
