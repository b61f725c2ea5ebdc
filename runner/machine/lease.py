"""Locks for GPUs, for the CPUs and for runs: a locked file for each GPU, by UUID, and one for the CPUs, so that two runners never measure
on the same device at a time.

The kernel drops the lock when the process that holds it ends, however it ends. The next runner takes over, and removes, the file that a
killed runner leaves. The file's text is for people: it names the holder to whoever waits.

The files of all users lie in a folder of root's in which nobody can remove or replace another user's file. Whoever makes a file can keep
others from opening it. Then a runner takes its lease in a folder of its own user, and says that it waits for this user's runners only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.errors import CannotBeginError, fix_of
from runner.paths import cache_folder

# One place for all users of the machine: the first of these that root made for everybody. The variable moves it.
VARIABLE = "DLBENCH_LEASES"
_SHARED = (Path("/run/lock"), Path("/tmp"))
_PREFIX = "dlbench-"

# In the place of a GPU's UUID: all CPUs of the machine.
CPUS = "cpus"

# The errors of flock(2) on a file system that has no locks.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
WITHOUT_LOCKS = "its file system has no locks (Lustre without `-o flock`, NFS without lockd)"

# The most bytes of a lease; a runner writes fewer. The kernel's own limit is PID_MAX_LIMIT of linux/threads.h.
_MOST_BYTES = 1000
_LARGEST_PID = 2**22

_POLL_SECONDS = 1.0

# Whoever waits says so again this often.
_SAY_SECONDS = 30.0


class LeaseError(CannotBeginError):
    """A GPU, the CPUs or a run is held by another runner; the message says by whom."""


@contextlib.contextmanager
def hold(
    devices: Sequence[str], run: str, say: Callable[[str], None], wait: bool = True, until: float = math.inf
) -> Iterator[None]:
    """Hold these GPUs (UUIDs), or CPUS, while the block runs; wait in line for those that others hold. Raises LeaseError.

    They are always taken in the same order, so two runners never wait for each other. `until`: when the waiting ends, by
    time.monotonic().
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        for device in sorted(set(devices)):
            stack.enter_context(_held(device, run, say, (began, until if wait else -math.inf)))
        yield


@contextlib.contextmanager
def alone(run: Path) -> Iterator[None]:
    """Hold a run's folder while the block runs: two runners on one run would repeat each other's cells. Raises LeaseError.

    The lock is on a file: on NFS a folder cannot be locked.
    """
    path = run / ".lease"
    try:
        lock = _try(path)
    except OSError as error:
        fix = "whoever made it may remove it when no runner is at work"
        raise _unusable(path, error, fix, "name a folder on another one with --results") from None
    if lock is None:
        raise LeaseError(f"another runner is working on {run}: {holder(path)}; wait for it, or stop it")
    with _signed(path, lock, run.name):
        yield


@contextlib.contextmanager
def _held(device: str, run: str, say: Callable[[str], None], waits: tuple[float, float]) -> Iterator[None]:
    """`waits`: when the waiting began and when it ends, by time.monotonic(); -inf: nobody waits."""
    path, lock = _first_try(device, say)
    announced, again = "", 0.0
    began, until = waits
    while lock is None:
        what, advice = (
            ("the CPUs of this machine are", "wait for it, or stop it")
            if device == CPUS
            else (f"GPU {device} is", "wait for it, stop it, or leave that GPU out with --gpus")
        )
        sentence, now = f"{what} held by {holder(path)}", time.monotonic()
        if until == -math.inf:
            raise LeaseError(f"{sentence}; {advice}")
        if now >= until:
            raise LeaseError(
                f"waited {_length(now - began)} for {_process(path)} and measured nothing; {sentence}; {advice}, "
                "or give more --minutes"
            )
        # Name each holder at once: the sentence without its minutes.
        who = sentence.rpartition(", for ")[0] or sentence
        if who != announced or now >= again:
            say(f"{sentence}; waiting in line for {_length(now - began)} (Ctrl-C ends the waiting)")
            announced, again = who, now + _SAY_SECONDS
        time.sleep(_POLL_SECONDS)
        lock = _try(path)
    with _signed(path, lock, run):
        yield


def _first_try(device: str, say: Callable[[str], None]) -> tuple[Path, int | None]:
    """A device's lease, and its descriptor where nobody else holds it. If all users' lease cannot be used, it is this user's own."""
    path = path_of(device)
    own = _own_folder()
    try:
        if path.parent != own:
            return path, _try(path)
        why = f"no folder of root's is open to all users ({', '.join(map(str, _SHARED))})"
    except OSError as error:
        fix = fix_of(error, "root, or who made it, may remove it")
        why = f"{path} cannot be used ({error.strerror}): {fix}"
    say(f"{why}; the runners of other users are not waited for")
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return own / path.name, _try(own / path.name)
    except OSError as error:
        raise _unusable(own / path.name, error, "remove it", "set XDG_CACHE_HOME to a folder on another one") from None


def _unusable(path: Path, error: OSError, fix: str, elsewhere: str) -> LeaseError:
    """The error of a lease that cannot be opened, or whose file system has no locks: then `elsewhere` is what helps."""
    if error.errno in _NO_LOCKS:
        return LeaseError(f"{path} cannot be locked ({error.strerror}): {WITHOUT_LOCKS}; {elsewhere}")
    return LeaseError(f"{path} cannot be opened ({error.strerror}); {fix_of(error, fix)}")


@contextlib.contextmanager
def _signed(path: Path, lock: int, run: str) -> Iterator[None]:
    """A locked file with its holder's name in it, removed at the end."""
    try:
        about = {"pid": os.getpid(), "run": run, "user": os.environ.get("USER", ""), "since": time.time()}
        # The lock is held already. On a full disk whoever waits is told of another runner without its name.
        with contextlib.suppress(OSError):
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(about).encode(), 0)
        yield
    finally:
        # Remove it before the lock ends: whoever has opened it meanwhile then sees that the file is another one. In a folder for all users
        # nobody may remove the file of another user's killed runner. It stays, unlocked.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(lock)


def path_of(device: str, ending: str = ".lease") -> Path:
    """The file about a device that all users' runners know. Raises LeaseError."""
    return folder() / f"{_PREFIX}{device.replace('/', '_')}{ending}"


def devices_with(ending: str) -> list[str]:
    """The devices that have a file with this ending."""
    paths = sorted(folder().glob(f"{_PREFIX}*{ending}"))
    return [path.name.removeprefix(_PREFIX).removesuffix(ending) for path in paths]


def folder() -> Path:
    """The folder of the leases. Raises LeaseError if the variable names a folder in which others can replace a file."""
    named = os.environ.get(VARIABLE)
    if not named:
        return next((path for path in _SHARED if _is_shared(path)), _own_folder())
    path = Path(named)
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):
            path.chmod(0o1777)
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()) or (status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX):
        raise LeaseError(
            f"{VARIABLE}: in {path} another user can replace your leases; name a folder of yours, or of root's"
        )
    return path


def _is_shared(path: Path) -> bool:
    """True if root made a folder in which all users make files, and each removes only their own."""
    try:
        status = path.lstat()
    except OSError:
        return False
    everybody = stat.S_ISVTX | 0o003
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == 0
        and status.st_mode & everybody == everybody
        and os.access(path, os.W_OK)
    )


def _own_folder() -> Path:
    """For leases that only this user's runners know."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    with contextlib.suppress(OSError):
        if runtime and Path(runtime).is_absolute() and Path(runtime).stat().st_uid == os.geteuid():
            return Path(runtime) / "dlbench-leases"
    return cache_folder() / "leases"


def _try(path: Path) -> int | None:
    """The descriptor of the locked file; None while somebody else holds it. Raises OSError for a file that is not to be used."""
    while True:
        lock = _open(path)
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
    """Open the file, or make it. In two steps: kernels refuse O_CREAT on another user's file in a folder for all.

    Raises OSError where it is a link, a pipe, or another name of a file elsewhere.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            lock = os.open(path, flags)
            status = os.fstat(lock)
            if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
                return lock
            os.close(lock)
            raise OSError(errno.EINVAL, "it is no file, or a file with several names", str(path))
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(lock, 0o666)  # whatever the umask: the next holder may be another user
                return lock


def holder(path: Path) -> str:
    """The holder of a lease, as the file names it. Other users write these files, so only numbers and short words are shown."""
    about = _about(path)
    if about is None:
        return "another runner"
    words = [f"process {about['pid']}"]
    for key in ("user", "run"):
        word = "".join(c for c in about[key][:60] if c.isalnum() or c in "-_.")
        words += [f"{key} {word}"] if word else []
    return f"another runner ({', '.join(words)}, for {_length(time.time() - about['since'])})"


def _process(path: Path) -> str:
    """The runner that holds a lease, by the id of its process where the file names it."""
    about = _about(path)
    return f"the runner with process id {about['pid']}" if about else "another runner"


def _about(path: Path) -> dict[str, Any] | None:
    """The content of a runner's lease; None if it is anything else. Another user's file may have any size, and hold any JSON."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            about = json.loads(os.read(descriptor, _MOST_BYTES))
        finally:
            os.close(descriptor)
        pid, since = about["pid"], about["since"]
        if not (type(pid) is int and 0 < pid <= _LARGEST_PID and type(since) in (int, float) and 0 <= since < math.inf):
            return None
        return {"pid": pid, "since": float(since), "user": str(about["user"]), "run": str(about["run"])}
    except (OSError, ValueError, RecursionError, OverflowError, KeyError, TypeError):
        return None


def _length(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
