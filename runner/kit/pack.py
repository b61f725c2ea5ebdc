"""The results of a kit as one archive: facts.json, the parcel of each step, and manifest.json with the digest of every file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.errors import UserError
from runner.kit.steps import KitStep
from runner.results.on_disk.whole import replace_bytes
from runner.results.parcel import ENDING

# Of the archive's layout. Until version 3 adapters were checked in steps of their own; versions 1 and 2 had other files.
VERSION = 4

ARCHIVE, FACTS, MANIFEST = "gpu-kit-results.tar.gz", "facts.json", "manifest.json"

# Of the files of all steps.
MOST_BYTES = 480 * 2**20


def path_of(out: Path, step: KitStep) -> Path:
    """The parcel of a step. It is written last: the step is done when it is there."""
    return out / "steps" / f"{step.name}{ENDING}"


def said_path(out: Path, step: KitStep) -> Path:
    """The outcome of a step that is done, for the summary; it stays here."""
    return out / "steps" / f"{step.name}.said"


def said(out: Path, step: KitStep) -> dict[str, Any]:
    """The document at said_path: `status`, `energy_joules` and a cell's figures. Raises UserError where it was edited."""
    path = said_path(out, step)
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        raise UserError(
            f"{path} is not as this kit wrote it; remove {path_of(out, step)}, and its step is done again"
        ) from None


def is_begun(out: Path) -> bool:
    """True if a step has ended in this folder, also of an older kit. Before one has, nothing is lost by beginning anew."""
    ended = (f"*{ENDING}", "*.json", "*/step.json")
    return (out / FACTS).exists() and any(any((out / "steps").glob(pattern)) for pattern in ended)


def size(out: Path) -> int:
    """How many bytes the parcels of the steps have."""
    return sum(path.stat().st_size for path in (out / "steps").glob(f"*{ENDING}"))


def pack(out: Path, done: Sequence[KitStep]) -> tuple[Path, str]:
    """Pack what was done so far: the archive, and its sha256 (hex)."""
    paths = [out / FACTS, *(path_of(out, step) for step in done)]
    content = packed({path.relative_to(out).as_posix(): path.read_bytes() for path in paths})
    replace_bytes(out / ARCHIVE, content)
    return out / ARCHIVE, hashlib.sha256(content).hexdigest()


def packed(files: Mapping[str, bytes]) -> bytes:
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


def document(value: Any) -> bytes:
    """A document. A path that is not UTF-8 would not be read again: question marks stand for such characters."""
    return json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "replace")
