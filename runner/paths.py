"""Paths of the project's own folders, and of the user's."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from runner.errors import UserError

# The version of the package that is installed.


def runner_version() -> str:
    """The version, or that there is none: in a checkout that nobody installed."""
    try:
        return version("dlbench-matrix")
    except PackageNotFoundError:
        return "not installed"


PROJECT = Path(__file__).resolve().parents[1]
BENCH = PROJECT / "bench"

_NAME = "dlbench"

CACHE_FIX = (
    "set XDG_CACHE_HOME to a folder without a colon that you may write, on a disk with room, locks and no noexec"
)


def own_command() -> str:
    """The command by which this runner was started, as one can type it again: `runner` where PATH has it."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py" and started.parent.name == "runner" and not shutil.which("runner"):
        return f"{shlex.quote(sys.executable)} -m runner"
    on_path = shutil.which("runner")
    if started.name != "runner" or (on_path and started.resolve() == Path(on_path).resolve()):
        return "runner"
    return shlex.quote(str(started))


def home() -> Path | None:
    """The user's home; None where neither HOME nor the system's list of users names one, as in many containers of clusters.

    A HOME that is empty or relative names none: it would be another folder in each working directory.
    """
    try:
        return _absolute("HOME") or Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def _absolute(variable: str) -> Path | None:
    """The folder that a variable names; None where it is unset, empty or relative."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else None


def _of_user(variable: str, ask: Callable[..., Path]) -> Path:
    """A folder of the user's, in the one that the variable names, else in the home. Raises UserError where there is neither."""
    if home() is None and _absolute(variable) is None:
        raise UserError(
            f"the home folder of user {os.getuid()} is not known: set HOME, or {variable}, to the absolute path of a folder "
            "that you may write"
        )
    return Path(ask(_NAME, appauthor=False))


def cache_folder() -> Path:
    """The folder of things that can be made again. Raises UserError."""
    from platformdirs import user_cache_path

    return _of_user("XDG_CACHE_HOME", user_cache_path)


def data_folder() -> Path:
    """The folder of things that the user has made, such as references. Raises UserError."""
    from platformdirs import user_data_path

    return _of_user("XDG_DATA_HOME", user_data_path)


def nearest(folder: Path) -> Path:
    """A folder, or before it is made its nearest parent that is there: it may be a file, or a folder that this user may not look into."""
    folder = folder.absolute()
    return next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))


def find_program(name: str) -> str | None:
    """A program on PATH, or beside this Python, where pip puts those of an environment that is not activated."""
    beside = Path(sys.executable).with_name(name)
    return shutil.which(name) or (str(beside) if beside.is_file() else None)
