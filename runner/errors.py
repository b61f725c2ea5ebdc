"""The one error that a user is meant to read. `runner.cli.main` catches it, prints its sentence and exits with its code.

A subclass says where it comes from, so that code between can catch it. A traceback is for bugs.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

if TYPE_CHECKING:
    from os import PathLike

    from pydantic import ValidationError


# Ctrl-C before a command has anything to end in order, and after.
#
# Python raises KeyboardInterrupt wherever it is. While modules are loaded that is a traceback, or nothing at all: the machinery of
# imports and many libraries swallow it.

# As runner.errors has it, which is not loaded yet.
INTERRUPTED = 130


def _end(*_: object) -> NoReturn:
    with contextlib.suppress(OSError):
        # A print could come in the middle of another one.
        os.write(2, b"runner: interrupted\n")
    os._exit(INTERRUPTED)


def _end_in_order(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, unless modules are being loaded: a command that loads one is no further than one that is killed."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def ends_at_once() -> None:
    """From here on Ctrl-C ends this process where it is, unless it is ignored, or somebody else handles it."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end_in_order):
        signal.signal(signal.SIGINT, _end)


def ends_in_order() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt where it ended the process at once before."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, _end_in_order)


class ExitCode(enum.IntEnum):
    """How a command ended. A number means the same in every command; `MEANINGS` is the table that the documents print."""

    OK = 0
    FOUND = 1
    USAGE = 2
    OPEN = 3
    CANNOT_BEGIN = 4
    INTERRUPTED = 130


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "all is well, or nothing was found",
    ExitCode.FOUND: "something was found: slower, wrong, failed, changed, or not all was run",
    ExitCode.USAGE: "a mistake of the command line, or a file that cannot be read",
    ExitCode.OPEN: "open: it was measured or looked at, and is not decided",
    ExitCode.CANNOT_BEGIN: "it could not begin, or its machine failed before an answer: an engine, GPUs, a network or room is lacking, or "
    "a folder cannot be written",
    ExitCode.INTERRUPTED: "interrupted",
}


def one_code(failed: bool, is_open: bool) -> ExitCode:
    """The code of several answers: one that failed counts before one that is open."""
    return ExitCode.FOUND if failed else ExitCode.OPEN if is_open else ExitCode.OK


def whole_code(codes: Collection[ExitCode]) -> ExitCode:
    """The code of several things that were to be done: where none could begin that, where some were not done or failed another."""
    if codes and set(codes) == {ExitCode.CANNOT_BEGIN}:
        return ExitCode.CANNOT_BEGIN
    return one_code(any(codes), is_open=False)


class UserError(Exception):
    """The fault, its place and the fix, in a sentence for the user."""

    exit_code = ExitCode.USAGE


class CannotBeginError(UserError):
    """An engine, GPUs, a network or room is lacking, so nothing was measured. The same command may work later, or elsewhere."""

    exit_code = ExitCode.CANNOT_BEGIN


class FoundError(UserError):
    """The command did what it was asked, and that failed."""

    exit_code = ExitCode.FOUND


class UndecidedError(UserError):
    """Something was measured, and it does not suffice for an answer."""

    exit_code = ExitCode.OPEN


_FIXES = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there") | dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), "make it yours, or name another"
)


# The faults of a machine under a program: no room, no memory, no further files or processes, or a disk that fails. The later ones are
# of damaged file systems (ext4, XFS), of a disk that was taken away, and of those on a network (NFS, Lustre, FUSE).
HOST_FAULTS = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EUCLEAN,
        errno.EBADMSG,
        errno.ENODEV,
        errno.ENXIO,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.ESHUTDOWN,
        errno.ECONNABORTED,
        errno.EREMOTEIO,
        errno.EHOSTDOWN,
        errno.ETIMEDOUT,
        errno.ENOLINK,
        errno.EKEYEXPIRED,
        errno.EKEYREVOKED,
    )
)


@contextlib.contextmanager
def naming(path: PathLike[str]) -> Iterator[None]:
    """Within the block, an error of the system that names no file names this one. A write to a full disk names none."""
    try:
        yield
    except OSError as error:
        # shutil.copytree makes one error of all, and of each keeps the names and the words only: (from, to, why).
        if error.errno is None and error.args and isinstance(error.args[0], list):
            _, copy, why = error.args[0][0]
            number = re.search(r"\[Errno (\d+)\]", why)
            raise (OSError(int(number[1]), os.strerror(int(number[1])), str(copy)) if number else error) from None
        error.filename = error.filename or str(path)
        raise


def numbered(error: OSError | MemoryError | RuntimeError) -> OSError:
    """An error of the system. Python gives no number to that of a process that may take no more memory (`ulimit -v`), or start no more
    threads (a limit of processes). Any other RuntimeError is raised again."""
    if isinstance(error, MemoryError):
        return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "this process may take no more")
    if isinstance(error, RuntimeError):
        if "can't start new thread" not in str(error):
            raise error
        fix = "raise the limit of its processes: `ulimit -u`, or that of its container or job"
        return OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)}; {fix}", "this process may start no more threads")
    return error


def system_fault(error: OSError) -> str:
    """The file, the fault and the fix, where one is known, of an error of the system."""
    # Of a copy and a renaming the second one is written.
    written = error.filename2 if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) else None
    where = f"{written or error.filename}: " if error.filename else ""
    fix = f"; {_FIXES[error.errno]}" if error.errno in _FIXES else ""
    return f"{where}{error.strerror or error}{fix}"


# Such a fault keeps a command from beginning: besides, a limit of this machine on a file's size, and a network that is not there.
_LACKS = HOST_FAULTS | {errno.EFBIG, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH}
# Of a folder of the runner's, it was taken away; of a file that a user names, it was named by mistake.
DENIED = (errno.EACCES, errno.EPERM)
# A server that answers so does not have what the address names. Of other answers the server or a proxy is the reason.
_NO_SUCH_ADDRESS = (400, 404, 410)


def fix_of(error: OSError, otherwise: str) -> str:
    """The advice for a file that cannot be written: of a full disk that of a full disk, else that of the caller."""
    return _FIXES[error.errno] if error.errno in (errno.ENOSPC, errno.EDQUOT) else otherwise


def code_of(error: UserError | OSError) -> ExitCode:
    """The exit code of an error. A fault of the machine that is behind a sentence is no mistake of the user."""
    if isinstance(error, OSError):
        return code_of_fault(error)
    behind = error.__context__
    if error.exit_code is ExitCode.USAGE and isinstance(behind, UserError | OSError):
        return code_of(behind)
    return error.exit_code


def code_of_fault(error: OSError) -> ExitCode:
    """The exit code of a command that an error of the system ends before it has done anything.

    A file that cannot be written, whatever the reason, and an address that does not answer, are what the machine lacks. A file that is
    not there, or may not be read, was named by mistake.
    """
    # Urllib wraps the error of a connection, and has the number of a server's answer.
    reason, answer = getattr(error, "reason", None), getattr(error, "code", None)
    if isinstance(reason, OSError):
        return code_of_fault(reason)
    if isinstance(answer, int):
        return ExitCode.USAGE if answer in _NO_SUCH_ADDRESS else ExitCode.CANNOT_BEGIN
    if error.errno in DENIED and error.filename is not None:
        refused = os.path.lexists(error.filename) and not os.access(error.filename, os.R_OK)
        return ExitCode.USAGE if refused else ExitCode.CANNOT_BEGIN
    # The errors of names that no server knows are below zero, and those of certificates have the numbers of permissions.
    lacks = (
        error.errno in (*_LACKS, *DENIED) or (error.errno or 0) < 0 or isinstance(error, ConnectionError | TimeoutError)
    )
    return ExitCode.CANNOT_BEGIN if lacks else ExitCode.USAGE


class NothingBegunError(UserError):
    """The user interrupted a command that had begun nothing. A shell calls such an end 130."""

    exit_code = ExitCode.INTERRUPTED


class EngineError(CannotBeginError):
    """An engine could not do its part. The wings `images` and `engines` raise it."""


class CacheError(EngineError):
    """The folder in which cells cache cannot be made, whatever the reason. No cell runs without it, and the machine is at fault."""


class DamagedError(EngineError):
    """A package or an image is not what its lock says. The machine is not at fault."""

    exit_code = ExitCode.FOUND


class BadFileError(EngineError):
    """The file that a user named as an image is none. The machine is not at fault."""

    exit_code = ExitCode.USAGE


class EngineGoneError(EngineError):
    """The engine does not answer. What it was asked may be asked again when it does."""


class HostFaultError(EngineError):
    """The machine cannot run the cells that are left: a disk is full, or the engine is gone. They are due again."""


def first_problem(error: ValidationError) -> str:
    """The first field that pydantic refuses, and why: `host.cpu_count: input should be a valid integer, not 'two'`."""
    problem = error.errors()[0]
    message = {"missing": "it is missing", "extra_forbidden": "there is no such field"}.get(problem["type"])
    if message is None:
        words = problem["msg"].removeprefix("Value error, ")
        # A file from elsewhere may hold a text of megabytes.
        given = f", not {repr(problem['input'])[:200]}" if isinstance(problem["input"], str | int | float) else ""
        message = f"{words[0].lower()}{words[1:]}{given}"
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).removeprefix(".")
    field = field if len(field) <= 200 else f"{field[:200]} …"
    return f"{field}: {message}" if field else message


# Standard output and standard error as a command has them: what becomes of a write that fails.


class _Guarded:
    """A stream of which each write is made within a context: `guard` makes it."""

    def __init__(self, stream: TextIO, guard: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._stream, self._guard = stream, guard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._guard():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._guard():
            self._stream.flush()


def name_stdout_in_faults() -> None:
    """From now on a write to standard output that fails names it. A write to a full disk names no file."""
    sys.stdout = cast(TextIO, _Guarded(sys.stdout, partial(naming, Path("standard output"))))


@contextlib.contextmanager
def lasting_stderr() -> Iterator[None]:
    """Within the block, no reader of standard error that ends (`2>&1 | head -1`), and no full disk of a log, ends this process."""
    stream = sys.stderr
    with contextlib.redirect_stderr(cast(TextIO, _Guarded(stream, partial(_until_broken, stream)))):
        yield


@contextlib.contextmanager
def _until_broken(stream: TextIO) -> Iterator[None]:
    """Once the reader of a stream is gone, or its disk is full, what is printed goes nowhere."""
    try:
        yield
    except OSError:
        # Send the buffer there too, or Python's exit would fail at it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
