"""Paths of the project's own folders, and of the user's."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
BENCH = PROJECT / "bench"

_NAME = "dlbench"


def own_command() -> str:
    """The command by which this runner was started, as one can type it again: `runner` where PATH has it."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py" and started.parent.name == "runner" and not shutil.which("runner"):
        return f"{shlex.quote(sys.executable)} -m runner"
    on_path = shutil.which("runner")
    if started.name != "runner" or (on_path and started.resolve() == Path(on_path).resolve()):
        return "runner"
    return shlex.quote(str(started))


def cache_folder() -> Path:
    """The folder of things that can be made again."""
    from platformdirs import user_cache_path

    return Path(user_cache_path(_NAME, appauthor=False))


def data_folder() -> Path:
    """The folder of things that the user has made, such as references."""
    from platformdirs import user_data_path

    return Path(user_data_path(_NAME, appauthor=False))


def find_program(name: str) -> str | None:
    """A program on PATH, or beside this Python, where pip puts those of an environment that is not activated."""
    beside = Path(sys.executable).with_name(name)
    return shutil.which(name) or (str(beside) if beside.is_file() else None)
