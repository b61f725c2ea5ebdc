"""A SIF of no catalog: it is pinned by the digest of its file, and shown the bench, read-only."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from runner.errors import BadFileError
from runner.paths import BENCH
from runner.results.on_disk.image_names import SIF

# The place of the bench in the container. Nothing else lies there, so nothing else can be imported from it.
FOLDER = "/dlbench"
BIND = f"{BENCH.resolve()}:{FOLDER}/{BENCH.name}:ro"

# How a SIF begins, after the line that starts it as a program.
_MAGIC, _AT = b"SIF_MAGIC", 32


def path_of(address: str) -> Path:
    """The file of an address."""
    return Path(address.removeprefix(SIF)).expanduser().absolute()


def pin(address: str) -> str:
    """The digest of a SIF. Raises EngineError where the file is none: BadFileError."""
    path = path_of(address)
    if path.exists() and not path.is_file():
        raise BadFileError(f"{path} is no file; name a file that `apptainer build` made")
    try:
        # A file of gigabytes is read once, unless it changes.
        return _digest(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise BadFileError(
            f"{path} cannot be read ({error.strerror}); name a file that `apptainer build` made"
        ) from None


@functools.cache
def _digest(path: Path, _changed: int) -> str:
    with path.open("rb") as file:
        if file.read(_AT + len(_MAGIC))[_AT:] != _MAGIC:
            raise BadFileError(f"{path} is no SIF; `apptainer build FILE.sif SOURCE` makes one")
        file.seek(0)
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
