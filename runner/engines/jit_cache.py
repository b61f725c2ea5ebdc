"""The kernels that NVIDIA's driver compiled from PTX and keeps. What a cell adds there it waited for, most of all in its first step."""

from __future__ import annotations

from pathlib import Path

from runner import trees
from runner.engines.slots import JIT_CACHE_FOLDER

# Cells write this folder, so it may hold anything. The driver's 4 GiB are some ten thousands of files.
_MAX_FILES = 200_000

# A cell can make sparse files of any size. Files far above the driver's limit of 4 GiB are not the driver's.
_MAX_BYTES = 2**40


def size(cache: Path) -> int | None:
    """Bytes of the files that the driver keeps below a cell's cache folder; 0 where there are none yet.

    None where that is not known: too many files or bytes, or a folder that cannot be read, as that of a user with another number on
    the host.
    """
    found = trees.size(cache / JIT_CACHE_FOLDER, _MAX_FILES)
    return found.said if found.whole and found.said <= _MAX_BYTES else None


def grew(cache: Path, before: int | None) -> int | None:
    """By how many bytes it grew since `size` returned `before`; None where either is not known."""
    now = None if before is None else size(cache)
    return None if before is None or now is None else max(0, now - before)
