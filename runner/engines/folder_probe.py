"""The steps by which runs use a folder, tried on it. The doctor and the engines ask here, so that both say the same."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.machine.lease import WITHOUT_LOCKS

Step = Callable[[Path], None]

# A fork runs its program within milliseconds; this is long beside it, and happens once.
_FORKED_SECONDS = 0.2


def write(folder: Path) -> None:
    (folder / "file").write_bytes(b"x")


def execute(folder: Path) -> None:
    program = folder / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    try:
        subprocess.run([program], check=False)
    except OSError as error:
        if error.errno != errno.ETXTBSY:
            raise
        # A process that another thread forked while the file was open for writing holds it open until it runs its own program.
        time.sleep(_FORKED_SECONDS)
        subprocess.run([program], check=False)


def link(folder: Path) -> None:
    (folder / "link").symlink_to("file")


def lock(folder: Path) -> None:
    with (folder / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# The steps that an environment needs.
ENVIRONMENT: tuple[Step, ...] = (write, execute, link, lock)

_WHAT: dict[Step, str] = {
    write: "cannot be written ({})",
    execute: "runs no programs ({}): its disk is mounted noexec, and libraries could not be loaded from there",
    link: "takes no symbolic links ({}), and environments have some",
    lock: f"cannot be locked ({{}}): {WITHOUT_LOCKS}, and two runners could work on one thing at once",
}


def fault(folder: Path, steps: Sequence[Step]) -> str | None:
    """The first of these steps that a folder, which must exist, does not do: the end of a sentence on it. None where it does all."""
    if steps == ENVIRONMENT and os.pathsep in str(folder.absolute()):
        # `venv` refuses such a folder: PATH could not name the programs in it.
        return f"has a {os.pathsep!r} in its path, and no environment can be made there"
    step: Step = write
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".dlbench-") as scratch:
            for step in steps:
                step(Path(scratch))
    except OSError as error:
        return _WHAT.get(step, _WHAT[write]).format(error.strerror or error)
    return None
