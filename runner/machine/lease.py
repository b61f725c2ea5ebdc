"""Locks for GPUs and for runs: a locked file for each GPU, by UUID, so that two runners never measure on one GPU at a time.

The kernel drops the lock when the process that holds it ends, however it ends. The next runner takes over, and removes, the file that a
killed runner leaves. The file's text is for people: it names the holder to whoever waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from runner.errors import UserError

# One place for all users of the machine. The variable moves it, for tests and for machines where /tmp is not shared.
VARIABLE = "DLBENCH_LEASES"
_DEFAULT = "/tmp/dlbench-leases"
_POLL_SECONDS = 1.0


class LeaseError(UserError):
    """A GPU or a run is held by another runner; the message says by whom."""


@contextlib.contextmanager
def hold(boards: Sequence[str], run: str, say: Callable[[str], None], wait: bool = True) -> Iterator[None]:
    """Hold these GPUs (UUIDs) while the block runs; wait in line for those that others hold. Raises LeaseError.

    They are always taken in the same order, so two runners never wait for each other.
    """
    with contextlib.ExitStack() as stack:
        for board in sorted(set(boards)):
            stack.enter_context(_held(board, run, say, wait))
        yield


@contextlib.contextmanager
def alone(run: Path) -> Iterator[None]:
    """Hold a run's folder while the block runs: two runners on one run would repeat each other's cells. Raises LeaseError.

    The lock is on a file: on NFS a folder cannot be locked.
    """
    path = run / ".lease"
    lock = _try(path)
    if lock is None:
        raise LeaseError(f"another runner is working on {run}: {holder(path)}; wait for it, or stop it")
    with _signed(path, lock, run.name):
        yield


@contextlib.contextmanager
def _held(board: str, run: str, say: Callable[[str], None], wait: bool) -> Iterator[None]:
    path = folder() / f"{board.replace('/', '_')}.lease"
    announced = ""
    while (lock := _try(path)) is None:
        sentence = f"GPU {board} is held by {holder(path)}"
        if not wait:
            raise LeaseError(f"{sentence}; wait for it, stop it, or leave that GPU out with --gpus")
        # Name each holder once: the sentence without its minutes.
        who = sentence.rpartition(", for ")[0] or sentence
        if who != announced:
            say(f"{sentence}; waiting in line (Ctrl-C ends the waiting)")
            announced = who
        time.sleep(_POLL_SECONDS)
    with _signed(path, lock, run):
        yield


@contextlib.contextmanager
def _signed(path: Path, lock: int, run: str) -> Iterator[None]:
    """A locked file with its holder's name in it, removed at the end."""
    try:
        about = {"pid": os.getpid(), "run": run, "user": os.environ.get("USER", ""), "since": time.time()}
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(about).encode(), 0)
        yield
    finally:
        # Remove it before the lock ends: whoever has opened it meanwhile then sees that the file is another one. In a folder for all users
        # nobody may remove the file of another user's killed runner. It stays, unlocked.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(lock)


def folder() -> Path:
    """Where the leases lie; made when it is not there, for every user."""
    path = Path(os.environ.get(VARIABLE) or _DEFAULT)
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):
            path.chmod(0o1777)
    return path


def _try(path: Path) -> int | None:
    """The descriptor of the locked file; None while somebody else holds it."""
    while True:
        try:
            lock = _open(path)
        except PermissionError:
            raise LeaseError(
                f"{path} cannot be opened; whoever made it may remove it when no runner is at work"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        try:
            if os.path.samestat(os.fstat(lock), path.lstat()):
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)  # its holder removed it after it was opened and before it was locked


def _open(path: Path) -> int:
    """Open the file, or make it. In two steps: kernels refuse O_CREAT on another user's file in a folder for all."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(lock, 0o666)  # whatever the umask: the next holder may be another user
                return lock


def holder(path: Path) -> str:
    """Who holds a lease, as the file says. Other users write these files, so only numbers and short words are shown."""
    try:
        about = json.loads(path.read_text()[:1000])
        words = [f"process {int(about['pid'])}"]
        for key in ("user", "run"):
            word = "".join(c for c in str(about[key])[:60] if c.isalnum() or c in "-_.")
            words += [f"{key} {word}"] if word else []
        return f"another runner ({', '.join(words)}, for {max(0, time.time() - float(about['since'])) / 60:.0f} min)"
    except (OSError, ValueError, KeyError, TypeError):
        return "another runner"
