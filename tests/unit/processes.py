"""The processes that a test started, and those that these started in turn."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path


def marked(variable: str, word: bytes = b"") -> list[int]:
    """The processes with `NAME=value` in their environment, and a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            own = variable.encode() in (path / "environ").read_bytes().split(b"\0")
            if own and word in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            pass
    return sorted(found)


def end(processes: Iterable[subprocess.Popen[str]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()
