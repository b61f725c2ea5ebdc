"""The one error that a user is meant to read. `runner.cli.main` catches it, prints its sentence and exits with its code.

A subclass says where it comes from, so that code between can catch it. A traceback is for bugs.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from pydantic import ValidationError


class UserError(Exception):
    """The fault, its place and the fix, in a sentence for the user."""

    exit_code = 2


_FIXES = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there") | dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), "make it yours, or name another"
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


class NothingBegunError(UserError):
    """The user interrupted a command that had begun nothing. A shell calls such an end 130."""

    exit_code = 130


class EngineError(UserError):
    """An engine could not do its part. The wings `images` and `engines` raise it."""


class EngineGoneError(EngineError):
    """The engine does not answer. What it was asked may be asked again when it does."""


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
