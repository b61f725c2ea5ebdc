"""The folder that an image's cells may write and that outlives them: one for each image and engine.

Later cells read what is there: stand-ins of data sets, and code that a framework or NVIDIA's driver compiled. A framework executes
such code when it finds it. So no cell of another image sees it, and none of another engine: what a walled-in cell leaves there must
not be executed by a cell without walls.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from runner import paths, trees
from runner.engines.base import JIT_CACHE_FOLDER
from runner.errors import CacheError
from runner.results.on_disk.image_names import as_file_name

# The kernels that NVIDIA's driver compiled from PTX and keeps. What a cell adds there it waited for, most of all in its first step.

# Cells write this folder, so it may hold anything. The driver's 4 GiB are some ten thousands of files.
_MAX_FILES = 200_000

# A cell can make sparse files of any size. Files far above the driver's limit of 4 GiB are not the driver's.
_MAX_BYTES = 2**40


def jit_cache_size(cache: Path) -> int | None:
    """Bytes of the files that the driver keeps below a cell's cache folder; 0 where there are none yet.

    None where that is not known: too many files or bytes, or a folder that cannot be read, as that of a user with another number on
    the host.
    """
    found = trees.size(cache / JIT_CACHE_FOLDER, _MAX_FILES)
    return found.said if found.whole and found.said <= _MAX_BYTES else None


def jit_cache_grew(cache: Path, before: int | None) -> int | None:
    """By how many bytes it grew since `size` returned `before`; None where either is not known."""
    now = None if before is None else jit_cache_size(cache)
    return None if before is None or now is None else max(0, now - before)


# Below these, and below a quarter of what there was, a disk is nearly full: a run's tables take some megabytes.
_LEAST_BYTES = 512 << 20
_LEAST_FILES = 2000

# The most bytes that the cells of an image may keep, with those of a running cell. Stand-ins take some gigabytes, NVIDIA's driver
# keeps 4 GiB at most.
MOST_BYTES = 32 << 30

# A folder that no cell has used for so long is removed when another one of its image and engine is made.
_UNUSED_SECONDS = 7 * 24 * 3600.0


def private_folder(*names: str) -> Path:
    """A folder in the user's cache folder. Nobody else may enter it, so a program that a cell makes setuid there serves nobody.

    A cell without walls may have put a file or a link in the place of one: it is removed, and told. Raises CacheError for what is
    another user's.
    """
    folder = paths.cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            folder /= name
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR((status := folder.lstat()).st_mode) and status.st_uid == os.geteuid():
                    what = f"a link to {str(folder.readlink())!a}" if folder.is_symlink() else "no folder"
                    folder.unlink()
                    sentence = f"{folder} was {what}, which a cell may have put there, and is a folder again"
                    print(f"{sentence}; XDG_CACHE_HOME names another disk", file=sys.stderr, flush=True)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise CacheError(f"{folder} is not a folder of yours: remove it, and the runner makes it again")
            if status.st_mode & 0o077:
                folder.chmod(0o700)
    except OSError as error:
        raise CacheError(f"{folder} cannot be made: {error.strerror}; {paths.CACHE_FIX}") from error
    return folder


def caches_folder() -> Path:
    """The folder of all of them. Raises CacheError."""
    return private_folder("cells")


def folder_of(engine: str, image: str, digest: str) -> Path:
    """The folder of one image on one engine; `digest` says which build of the image. Raises CacheError."""
    parent = private_folder("cells", engine)
    image = as_file_name(image)
    folder = parent / f"{image}-{hashlib.sha256(digest.encode()).hexdigest()[:12]}"
    try:
        there = folder.lstat() if os.path.lexists(folder) else None
        # A cell without walls may have put a link in its place, to a folder that the next one would fill. What is not there is not
        # removed: a cell of the same image that starts at this moment may just have made it.
        if there and not stat.S_ISDIR(there.st_mode):
            trees.remove(folder)
        if there is None:
            _remove_unused(parent, image)
        folder.mkdir(exist_ok=True)
        os.utime(folder)
    except OSError as error:
        raise CacheError(f"{folder} cannot be made: {error.strerror}; {paths.CACHE_FIX}") from error
    return folder


@dataclass(frozen=True)
class Room:
    """The free room of a disk, whoever fills it: the files of a cell need not have a name, or one that can be found."""

    bytes: int
    # None: its file system does not count them.
    files: int | None

    @classmethod
    def of(cls, folder: Path) -> Room:
        """The room on a folder's disk. Raises OSError."""
        disk = os.statvfs(folder)
        return cls(disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else None)

    def lost_since(self, before: Room) -> str | None:
        """The loss of a disk that is nearly full now, as a sentence; None where it has room, or had none before."""
        if self.bytes < min(_LEAST_BYTES, before.bytes // 4):
            return f"it has {self.bytes / 1e9:.2f} GB left of the {before.bytes / 1e9:.2f} GB that were free when the cell began"
        if self.files is None or before.files is None or self.files >= min(_LEAST_FILES, before.files // 4):
            return None
        return f"it takes {self.files} more files, and took {before.files} when the cell began"


def disarm(folder: Path) -> None:
    """Take from all that lies below a folder the right to run as its owner or group, which a cell may have given it.

    A tree that is too large to look at all of it is removed.
    """
    if not trees.disarm(folder):
        trees.remove(folder)


def _remove_unused(parent: Path, image: str) -> None:
    """Remove what other builds of an image left, unless a cell used it a short time ago."""
    oldest = time.time() - _UNUSED_SECONDS
    for folder in parent.glob(f"{image}-*"):
        # The name of one image may begin with another's.
        if len(folder.name) == len(image) + 13 and folder.lstat().st_mtime < oldest:
            trees.remove(folder)
