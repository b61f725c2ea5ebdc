"""Finds an interpreter of a given Python version on this machine: PATH, the running one, pyenv's, uv's. Fetches none."""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import rules
from runner.catalog.architectures import emulated
from runner.paths import find_program, home

# Each candidate runs this, in syntax that Python 3.6 has. A virtual environment leads to the interpreter that it was made from.
# It imports little: a plan asks a dozen interpreters.
_QUESTION = """
import importlib.util, json, os, sys
base = getattr(sys, "_base_executable", None) or sys.executable
if sys.prefix != sys.base_prefix and not hasattr(sys, "_base_executable"):
    base = os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2])
complete = all(map(importlib.util.find_spec, ["ensurepip", "venv"]))
print(json.dumps({"path": os.path.realpath(base), "version": sys.version.split()[0], "bits": 64 if sys.maxsize > 2**32 else 32,
    "implementation": sys.implementation.name, "machine": os.uname()[4], "complete": complete}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that virtual environments can be made from."""

    path: Path
    version: str  # e.g. 3.11.7

    @property
    def release(self) -> tuple[int, ...]:
        """(3, 11)"""
        return tuple(int(part) for part in self.version.split(".")[:2])


@functools.cache
def find_interpreter(minor: str) -> Interpreter | str:
    """An interpreter of a minor version such as "3.11", or the sentence that says why there is none."""
    flaws: list[str] = []
    for candidate in _candidates(minor):
        facts = _ask(candidate)
        if facts is None or not str(facts["version"]).startswith(minor + "."):
            continue
        if facts["implementation"] != "cpython" or facts["bits"] != 64:
            flaws.append(f"{facts['path']} is no 64-bit CPython")
        elif reason := emulated(str(facts["machine"])):
            flaws.append(f"{facts['path']}: {reason}")
        elif not facts["complete"]:
            flaws.append(f"{facts['path']} lacks the modules venv and ensurepip (Debian: python{minor}-venv)")
        else:
            return Interpreter(Path(str(facts["path"])), str(facts["version"]))
    places = "PATH, pyenv or uv"
    because = f" ({'; '.join(dict.fromkeys(flaws))})" if flaws else ""
    return f"no Python {minor} was found by {places}{because}; `uv python install {minor}` or pyenv installs one"


def _candidates(minor: str) -> Iterator[str]:
    root = Path(os.environ.get("PYENV_ROOT") or (home() or Path("/")) / ".pyenv")
    on_path = shutil.which(f"python{minor}")
    # A shim of pyenv is a shell script that starts one of the versions below. Asking these directly takes a fifth of the CPU time.
    if on_path and Path(on_path).parent != root / "shims":
        yield on_path
    if platform.python_version().startswith(minor + "."):
        yield sys.executable
    yield from map(str, sorted(_of_pyenv(root, minor), key=_patch, reverse=True))
    if uv := find_program("uv"):
        answer = _output([uv, "python", "find", "--offline", "--no-python-downloads", "--no-project", minor])
        if answer:
            yield answer.strip()


def _of_pyenv(root: Path, minor: str) -> list[Path]:
    try:
        return list(root.glob(f"versions/{minor}.*/bin/python{minor}"))
    except OSError:  # another user's folder, which `su` leaves in PYENV_ROOT
        return []


def _patch(path: Path) -> int:
    number = rules.whole(path.parent.parent.name.split(".")[-1])
    return -1 if number is None else number


@functools.cache
def _ask(candidate: str) -> dict[str, object] | None:
    answer = _output([candidate, "-I", "-c", _QUESTION])
    try:
        facts = json.loads(answer) if answer else None
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


def _output(command: list[str]) -> str | None:
    """The output of a command, or None when it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None
