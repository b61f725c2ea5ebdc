"""Finds the environments of locks that no image of the catalog has any more, and removes those that nobody uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from runner import trees
from runner.catalog.images import Image
from runner.engines.process.interpreters import Interpreter, find_interpreter
from runner.engines.process.venv import COMPLETE, COMPLETE_TRIAL, environment_folder, trial_folder
from runner.paths import cache_folder


def stale(images: Iterable[Image]) -> Iterator[tuple[Path, str]]:
    """(folder, what it is) of these images' environments that the engine `venv` would not take today, and of those that a try left.

    An image whose Python is not on this machine is left out: nobody can say which of its environments is today's.
    """
    for image in images:
        # To find an interpreter takes longer than all the rest.
        if not list(cache_folder().glob(f"*/{image.name}-*")):
            continue
        interpreter = find_interpreter(image.python)
        if not isinstance(interpreter, Interpreter):
            continue
        current = environment_folder(image, interpreter)
        # The name of one image may begin with another's.
        own = re.compile(re.escape(image.name) + "-[0-9a-f]{12}")
        for folder in sorted(current.parent.glob(f"{image.name}-*")):
            if folder != current and folder.is_dir() and own.fullmatch(folder.name):
                yield folder, f"{image.name} of another lock or Python, {trees.size(folder).on_disk / 1e9:.1f} GB"
        for folder in sorted(trial_folder(current).parent.glob(f"{image.name}-*")):
            if folder.is_dir() and own.fullmatch(folder.name):
                yield folder, f"{image.name} as `runner images try` left it, {trees.size(folder).on_disk / 1e9:.1f} GB"


def remove(folder: Path) -> str | None:
    """Remove an environment; why it stays, where it is being made or something runs in it. Raises OSError."""
    try:
        with FileLock(f"{folder}.lock", timeout=0):
            if number := _user(folder):
                return f"process {number} runs in it"
            # First: half an environment must not pass for a whole one.
            for marker in (COMPLETE, COMPLETE_TRIAL):
                (folder / marker).unlink(missing_ok=True)
            return trees.remove(folder)
    except Timeout:
        return "a runner is making it"
    return None


def _user(folder: Path) -> int | None:
    """A process that was started with a program of the folder."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"]
        if command and command[0].startswith(f"{folder}/"):
            return int(process.pid)
    return None
