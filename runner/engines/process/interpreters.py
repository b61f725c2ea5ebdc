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

# Locks hold wheels for this machine type only.
_MACHINE = "x86_64"

# Asked of each candidate, in syntax that Python 3.6 has. A virtual environment is traced to the interpreter it was made from.
_QUESTION = """
import json, os, platform, struct, sys
base = getattr(sys, "_base_executable", None) or sys.executable
if sys.prefix != sys.base_prefix and not hasattr(sys, "_base_executable"):
    base = os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2])
try:
    import ensurepip, venv
    complete = True
except ImportError:
    complete = False
print(json.dumps({"path": os.path.realpath(base), "version": platform.python_version(), "bits": struct.calcsize("P") * 8,
    "implementation": platform.python_implementation(), "machine": platform.machine(), "complete": complete}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that virtual environments can be made from."""

    path: Path
    version: str  # e.g. 3.11.7


@functools.cache
def find_interpreter(minor: str) -> Interpreter | str:
    """An interpreter of a minor version such as "3.11", or the sentence that says why there is none."""
    flaws: list[str] = []
    for candidate in _candidates(minor):
        found = _ask(candidate)
        if found is None or not str(found["version"]).startswith(minor + "."):
            continue
        if found["implementation"] != "CPython" or found["bits"] != 64 or found["machine"] != _MACHINE:
            flaws.append(f"{found['path']} is no 64-bit CPython for {_MACHINE}")
        elif not found["complete"]:
            flaws.append(f"{found['path']} lacks the modules venv and ensurepip (Debian: python{minor}-venv)")
        else:
            return Interpreter(Path(str(found["path"])), str(found["version"]))
    if platform.machine() != _MACHINE:
        return f"the locks are for {_MACHINE} and this machine is {platform.machine()}"
    places = "PATH, pyenv or uv"
    because = f" ({'; '.join(dict.fromkeys(flaws))})" if flaws else ""
    return f"no Python {minor} was found by {places}{because}; `uv python install {minor}` or pyenv installs one"


def _candidates(minor: str) -> Iterator[str]:
    on_path = shutil.which(f"python{minor}")
    if on_path:
        yield on_path
    yield sys.executable
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for path in sorted(root.glob(f"versions/{minor}.*/bin/python{minor}"), key=_patch, reverse=True):
        yield str(path)
    uv = shutil.which("uv") or _beside("uv")
    if uv:
        found = _output([uv, "python", "find", "--offline", "--no-python-downloads", "--no-project", minor])
        if found:
            yield found.strip()


def _patch(path: Path) -> int:
    number = path.parent.parent.name.split(".")[-1]
    return int(number) if number.isdigit() else -1


def _beside(name: str) -> str | None:
    path = Path(sys.executable).with_name(name)
    return str(path) if path.is_file() else None


def _ask(candidate: str) -> dict[str, object] | None:
    answer = _output([candidate, "-I", "-c", _QUESTION])
    try:
        found = json.loads(answer) if answer else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _output(command: list[str]) -> str | None:
    """What a command prints, or None when it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None
