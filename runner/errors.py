"""The one error that a user is meant to read. `runner.cli.main` catches it, prints its sentence and exits with its code.

A subclass says where it comes from, so that code between can catch it. A traceback is for bugs.
"""

from __future__ import annotations

import contextlib
import enum
import errno
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from pydantic import ValidationError


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
    ExitCode.CANNOT_BEGIN: "it could not begin: the machine, its engine, its GPUs or room is lacking, and nothing was measured",
    ExitCode.INTERRUPTED: "interrupted",
}


def one_code(failed: bool, is_open: bool) -> ExitCode:
    """The code of several answers: one that failed counts before one that is open."""
    return ExitCode.FOUND if failed else ExitCode.OPEN if is_open else ExitCode.OK


class UserError(Exception):
    """The fault, its place and the fix, in a sentence for the user."""

    exit_code = ExitCode.USAGE


class CannotBeginError(UserError):
    """The machine, its engine, its GPUs or room is lacking, so nothing was measured. The same command may work later, or elsewhere."""

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


# The faults of a machine under a program: no room, no memory, no further files or processes, or a disk that fails.
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
        errno.ESTALE,
        errno.ENOTCONN,
    )
)


@contextlib.contextmanager
def naming(path: PathLike[str]) -> Iterator[None]:
    """Within the block, an error of the system that names no file names this one. A write to a full disk names none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def system_fault(error: OSError) -> str:
    """The file, the fault and the fix, where one is known, of an error of the system."""
    where = f"{error.filename}: " if error.filename else ""
    fix = f"; {_FIXES[error.errno]}" if error.errno in _FIXES else ""
    return f"{where}{error.strerror or error}{fix}"


# Such a fault keeps a command from beginning. A folder that can only be read was named by mistake, and a file that may not become larger
# is a limit of the machine's.
_LACKS = HOST_FAULTS - {errno.EROFS} | {errno.EFBIG}


def fix_of(error: OSError, otherwise: str) -> str:
    """The advice for a file that cannot be written: of a full disk that of a full disk, else that of the caller."""
    return _FIXES[error.errno] if error.errno in (errno.ENOSPC, errno.EDQUOT) else otherwise


def code_of(error: UserError) -> ExitCode:
    """The exit code of an error. A fault of the machine that is behind a sentence is no mistake of the user."""
    behind = error.__context__
    if error.exit_code is ExitCode.USAGE and isinstance(behind, OSError):
        return code_of_fault(behind)
    return error.exit_code


def code_of_fault(error: OSError) -> ExitCode:
    """The exit code of a command that an error of the system ends before it has done anything."""
    return ExitCode.CANNOT_BEGIN if error.errno in _LACKS else ExitCode.USAGE


class NothingBegunError(UserError):
    """The user interrupted a command that had begun nothing. A shell calls such an end 130."""

    exit_code = ExitCode.INTERRUPTED


class EngineError(CannotBeginError):
    """An engine could not do its part. The wings `images` and `engines` raise it."""


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
