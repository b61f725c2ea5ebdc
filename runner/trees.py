"""Folders that strangers have written: to look at all that lies below one, to take rights from it, to remove it.

A cell may leave any tree: ten thousand folders deep, a million names, names of any bytes, links, folders without rights. Python's own
os.walk and shutil.rmtree call themselves for each folder below, and end with RecursionError in a deep one. Here one folder is open at a
time, no link is followed, no mount is entered, and names and time have a limit. Standard library only: the keeper of a cell
loads this file by its path.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

# The most names and seconds of one pass over a tree. The names of a folder are in memory.
MOST_NAMES = 500_000
MOST_SECONDS = 60.0

_BLOCK_BYTES = 4096
_SET_ID = stat.S_ISUID | stat.S_ISGID
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Of umount2(2): also where a file is still open, and not where a link points to.
_DETACH, _NO_LINK = 2, 8

# The sentences that were told: each is told once.
_told: set[str] = set()


class Size(NamedTuple):
    """The size of a folder. Not `whole`: a lower bound, since the limits hid a part."""

    # As it lies on the disk; each name counts for a block at least.
    on_disk: int
    # As the files say: one without content may say any number.
    said: int
    names: int
    whole: bool


class _Entry(NamedTuple):
    # The descriptor of the folder that has it.
    at: int
    name: str
    status: os.stat_result
    # A folder comes twice: before what is in it, and after that.
    after: bool


def mount_points(mountinfo: Path = Path("/proc/self/mountinfo")) -> Iterator[Path]:
    """The mount points of file systems (proc(5)): the fifth field, in which a space is \\040."""
    for line in mountinfo.read_bytes().splitlines():
        escaped = line.split(b" ")[4]
        yield Path(os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda digits: bytes([int(digits[1], 8)]), escaped)))


def _mounts(folder: Path) -> set[str]:
    """The mount points in a folder, or on it. A part of the same disk may be mounted there: device numbers do not show that."""
    with contextlib.suppress(OSError):
        # The target of a link is not in it.
        own = Path(os.path.realpath(folder.parent)) / folder.name
        return {str(point) for point in mount_points() if point.is_relative_to(own)}
    return set()


class _Walk:
    """Goes through a tree with one descriptor.

    After it, `fault` says what could not be seen or done; None: all was. `cut`: it ended before it had been everywhere.
    """

    def __init__(
        self, folder: Path, names: int = MOST_NAMES, seconds: float = MOST_SECONDS, enter: bool = False
    ) -> None:
        """`enter`: a folder in which its owner may not do everything is given that right."""
        self.fault: str | None = None
        self.cut = False
        self._folder = folder
        self._left = names
        self._end = time.monotonic() + seconds
        self._enter = enter
        self._mounts = _mounts(folder)

    def __iter__(self) -> Iterator[_Entry]:
        try:
            at = self._open(os.fspath(self._folder), None, os.lstat(self._folder))
        except FileNotFoundError:
            return
        except OSError as error:
            self.note(error)
            return
        # Of each folder above: itself, how the one below is named and what it is, and the names that are not seen yet.
        above: list[tuple[os.stat_result, str, os.stat_result, list[str]]] = []
        try:
            here = os.fstat(at)
            names = self._names(at)
            while True:
                if names:
                    name = names.pop()
                    status = self._status(name, at)
                    if status is None:
                        continue
                    yield _Entry(at, name, status, False)
                    below = self._below(name, at, status) if status.st_dev == here.st_dev else None
                    if below is None and stat.S_ISDIR(status.st_mode):
                        yield _Entry(at, name, status, True)
                    elif below is not None:
                        above.append((here, name, status, names))
                        os.close(at)
                        at, here = below, os.fstat(below)
                        names = self._names(at)
                elif not above:
                    return
                else:
                    before = at
                    expected, name, status, names = above.pop()
                    at = os.open("..", _FOLDER, dir_fd=before)
                    os.close(before)
                    here = os.fstat(at)
                    if not os.path.samestat(here, expected):
                        return self._cut("a folder in it was moved meanwhile")
                    yield _Entry(at, name, status, True)
        except OSError as error:
            self._cut(error.strerror or str(error))
        finally:
            os.close(at)

    def _names(self, at: int) -> list[str]:
        """The names in a folder, as many as the limits leave."""
        try:
            with os.scandir(at) as entries:
                names = [entry.name for entry in islice(entries, self._left + 1)]
        except OSError as error:
            self.note(error)
            return []
        if len(names) > self._left:
            self._cut("it has too many names")
            del names[self._left :]
        self._left -= len(names)
        return names

    def _status(self, name: str, at: int) -> os.stat_result | None:
        if time.monotonic() > self._end:
            self._cut("it took too long")
            return None
        try:
            return os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.note(error)
            return None

    def _below(self, name: str, at: int, status: os.stat_result) -> int | None:
        """The folder of this name, open; None where it is none, or cannot be opened."""
        if not stat.S_ISDIR(status.st_mode):
            return None
        try:
            opened = self._open(name, at, status)
            if self._mounts and os.readlink(f"/proc/self/fd/{opened}") in self._mounts:  # noqa: PTH115 - of any bytes
                os.close(opened)
                return None
            return opened
        except FileNotFoundError:
            return None
        except OSError as error:
            self.note(error)
            return None

    def _open(self, name: str, at: int | None, status: os.stat_result) -> int:
        if self._enter and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            _change_mode(name, at, add=stat.S_IRWXU)
        return os.open(name, _FOLDER, dir_fd=at)

    def _cut(self, why: str) -> None:
        self.fault, self.cut = self.fault or why, True

    def note(self, error: OSError) -> None:
        self.fault = self.fault or error.strerror or str(error)


def size(folder: Path, names: int = MOST_NAMES, seconds: float = MOST_SECONDS) -> Size:
    """The size of a folder; zero if it does not exist."""
    walk, on_disk, said, count = _Walk(folder, names, seconds), 0, 0, 0
    for entry in walk:
        if not entry.after:
            count += 1
            on_disk += max(_BLOCK_BYTES, 512 * entry.status.st_blocks)
            said += 0 if stat.S_ISDIR(entry.status.st_mode) else entry.status.st_size
    return Size(on_disk, said, count, walk.fault is None)


def below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The entries below a folder, in no order, as far as they can be seen."""
    above: list[str] = []
    for entry in _Walk(folder):
        if entry.after:
            above.pop()
            continue
        yield folder.joinpath(*above, entry.name), entry.status
        if stat.S_ISDIR(entry.status.st_mode):
            above.append(entry.name)


def files(folder: Path) -> Iterator[Path]:
    """All below it that is no folder: files and links among them."""
    return (path for path, status in below(folder) if not stat.S_ISDIR(status.st_mode))


def disarm(folder: Path) -> bool:
    """Take from all that lies below a folder the right to run as its owner or group. False: it was too much to look at all.

    What another user keeps to himself, as the users of a rootless engine do, is not opened.
    """
    walk = _Walk(folder, enter=True)
    for entry in walk:
        if not entry.after and entry.status.st_mode & _SET_ID:
            try:
                _change_mode(entry.name, entry.at, drop=_SET_ID)
            except OSError as error:
                walk.note(error)
    return not walk.cut


def detach(folder: Path) -> None:
    """Take away the mounts that a cell without walls has made in its folder, as far as that is allowed."""
    # Of several on one point only the last one goes.
    while points := sorted(_mounts(folder), reverse=True):
        import ctypes  # hardly ever needed, and each command loads this file

        umount = ctypes.CDLL(None).umount2
        faults = [umount(os.fsencode(point), _DETACH | _NO_LINK) for point in points]
        if all(faults):
            return


def remove(folder: Path, quietly: bool = False) -> str | None:
    """Remove a folder with all that is in it, or a file. Never raises: why it is still there is told once, and returned.

    `quietly`: it is returned only.
    """
    say = str if quietly else tell
    end = time.monotonic() + MOST_SECONDS
    while True:
        walk = _Walk(folder, seconds=end - time.monotonic(), enter=True)
        removed = 0
        for entry in walk:
            if entry.after or not stat.S_ISDIR(entry.status.st_mode):
                try:
                    (os.rmdir if entry.after else os.unlink)(entry.name, dir_fd=entry.at)
                    removed += 1
                except FileNotFoundError:
                    pass
                except OSError as error:
                    walk.note(error)
        try:
            status = os.lstat(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return say(f"{os.fspath(folder)!a} could not be removed ({error.strerror}); remove it by hand")
        try:
            (os.rmdir if stat.S_ISDIR(status.st_mode) else os.unlink)(folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = walk.fault or error.strerror or str(error)
            # New entries, or more than one pass can remove, are for the next pass.
            if removed and time.monotonic() < end:
                continue
            return say(f"{os.fspath(folder)!a} could not be removed ({why}); remove it by hand")
        return None


def tell(sentence: str) -> str:
    """Print a sentence, once only."""
    if sentence not in _told:
        _told.add(sentence)
        print(sentence, file=sys.stderr, flush=True)
    return sentence


def _change_mode(name: str, at: int | None, add: int = 0, drop: int = 0) -> None:
    """Change the rights of a file or a folder. A link may stand in its place by now: what is opened is changed, and no link is followed."""
    opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        mode = os.fstat(opened).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            Path(f"/proc/self/fd/{opened}").chmod((stat.S_IMODE(mode) | add) & ~drop)
    finally:
        os.close(opened)
