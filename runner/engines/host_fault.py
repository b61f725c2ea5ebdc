"""The faults of the machine under a repeat, which has then neither ended nor failed, and is due again; and the steps by which a run
uses a folder, tried on it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from runner.engines import cell_cache
from runner.errors import DENIED, HOST_FAULTS, CacheError, UserError
from runner.known_messages import is_of_the_host
from runner.machine.lease import WITHOUT_LOCKS
from runner.paths import cache_folder
from runner.text import plural

# The steps by which runs use a folder, tried on it. The doctor and the engines ask here, so that both say the same.

Step = Callable[[Path], None]

# A fork runs its program within milliseconds; this is long beside it, and happens once.
_FORKED_SECONDS = 0.2


def write(folder: Path) -> None:
    (folder / "file").write_bytes(b"x")


def execute(folder: Path) -> None:
    program = folder / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    try:
        subprocess.run([program], check=False)
    except OSError as error:
        if error.errno != errno.ETXTBSY:
            raise
        # A process that another thread forked while the file was open for writing holds it open until it runs its own program.
        time.sleep(_FORKED_SECONDS)
        subprocess.run([program], check=False)


def link(folder: Path) -> None:
    (folder / "link").symlink_to("file")


def lock(folder: Path) -> None:
    with (folder / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# The steps that an environment needs.
ENVIRONMENT: tuple[Step, ...] = (write, execute, link, lock)

_WHAT: dict[Step, str] = {
    write: "cannot be written ({})",
    execute: "runs no programs ({}): its disk is mounted noexec, and libraries could not be loaded from there",
    link: "takes no symbolic links ({}), and environments have some",
    lock: f"cannot be locked ({{}}): {WITHOUT_LOCKS}, and two runners could work on one thing at once",
}


def folder_fault(folder: Path, steps: Sequence[Step]) -> str | None:
    """The first of these steps that a folder, which must exist, does not do: the end of a sentence on it. None where it does all."""
    if steps == ENVIRONMENT and os.pathsep in str(folder.absolute()):
        # `venv` refuses such a folder: PATH could not name the programs in it.
        return f"has a {os.pathsep!r} in its path, and no environment can be made there"
    step: Step = write
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".dlbench-") as scratch:
            for step in steps:
                step(Path(scratch))
    except OSError as error:
        return _WHAT.get(step, _WHAT[write]).format(error.strerror or error)
    return None


# A disk with less room than this is why a cell failed that says so. A cell writes some megabytes before it measures.
LEAST_BYTES, LEAST_FILES = 16 << 20, 200


def is_host_fault(error: BaseException) -> bool:
    """True if the machine is the reason of an error under a cell that never ran, and not the cell or its image."""
    if isinstance(error, CacheError):
        return True
    # An engine's error has that of the system behind it.
    if any(isinstance(fault, OSError) and fault.errno in (*HOST_FAULTS, *DENIED) for fault in (error, error.__cause__)):
        return True
    # Python has no other error for a thread that cannot be started.
    return isinstance(error, UserError | RuntimeError) and is_of_the_host(str(error))


def of_disk(of_engine: Callable[[], Path | None]) -> str:
    """Why the disk of an engine's images fails, in a sentence; empty where it does not, or where this user may not try it.

    An engine whose disk fails may say that it never had an image.
    """
    with contextlib.suppress(UserError):
        folder = of_engine()
        why = folder_fault(folder, (write,)) if folder else None
        return f"{folder} {why}" if why and is_of_the_host(why) else ""
    return ""


def is_short_of_room(folders: Iterable[Path]) -> bool:
    """True if the disk of one of these folders takes nothing more, nearly."""
    return any(_is_short(folder) for folder in folders)


def _is_short(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        room = cell_cache.Room.of(folder)
        return room.bytes < LEAST_BYTES or (room.files is not None and room.files < LEAST_FILES)
    return False


def rooms(run: Path, of_engine: Callable[[], Path | None] = lambda: None) -> str:
    """The free room of each disk that a run writes to, the full ones first, as a clause. `of_engine`: the folder of its images."""
    folders = [run, Path(tempfile.gettempdir())]
    with contextlib.suppress(UserError):
        folders.insert(1, cache_folder())
    with contextlib.suppress(UserError):
        if (images := of_engine()) is not None:
            folders.append(images)
    disks: dict[Path, str] = {}
    for folder in sorted(folders, key=lambda folder: not _is_short(folder)):
        with contextlib.suppress(OSError):
            point = _mount_point(folder)
            disks.setdefault(point, _room(point))
    return ", ".join(disks.values())


def _mount_point(folder: Path) -> Path:
    """The mount point of a folder's file system. A folder that is not there yet counts as the nearest one above it. Raises OSError."""
    place = Path(os.path.realpath(folder))
    while not place.exists() and place != place.parent:
        place = place.parent
    device = place.stat().st_dev
    while place != place.parent and place.parent.stat().st_dev == device:
        place = place.parent
    return place


def _room(point: Path) -> str:
    """The free room of a file system, as a clause. Raises OSError."""
    disk = os.statvfs(point)
    free, whole = disk.f_bavail * disk.f_frsize / 1e9, disk.f_blocks * disk.f_frsize / 1e9
    files = f" and room for {plural(disk.f_favail, 'file')}" if disk.f_files and disk.f_favail < LEAST_FILES else ""
    read_only = ", and can only be read" if disk.f_flag & os.ST_RDONLY else ""
    return f"{point} has {free:.2f} GB of {whole:.2f} GB free{files}{read_only}"
