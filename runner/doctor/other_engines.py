"""Doctor's checks of Podman and Apptainer, where they are on this machine: what their containers need, and one that is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from runner import known_messages
from runner.doctor.scene import OK, WARN, Check, Scene
from runner.errors import UserError
from runner.text import in_a_line

_SECONDS = 60.0
_FUSE = Path("/dev/fuse")
# The hierarchy of version 2 beside those of version 1.
_BOTH = Path("/sys/fs/cgroup/unified")
NO_CELL = "`--engine {}` starts no cell here; other engines do not need it"


def podman(_: Scene) -> Iterator[Check]:
    """Podman answers, and its runtime starts containers with this machine's control groups."""
    from runner.engines.podman import PodmanEngine

    if not os.environ.get("CONTAINER_HOST") and shutil.which("podman") is None:
        return
    engine, means = PodmanEngine(), NO_CELL.format("podman")
    if reason := engine.unavailable():
        yield Check("Podman", WARN, reason, means, "start its service, as the sentence says; or take another engine")
        return
    runtime = str(engine.info.get("DefaultRuntime") or "an unnamed runtime")
    if "crun" in runtime and _BOTH.is_dir():
        message = known_messages.find("crun: cgroups in hybrid mode not supported")
        assert message is not None
        yield Check("Podman", WARN, f"its runtime is {runtime}: {message.means}", means, message.fix)
        return
    yield Check("Podman", OK, f"it answers, with {runtime}; {engine.guarantees()}")


def apptainer(_: Scene) -> Iterator[Check]:
    """User namespaces, /dev/fuse and mksquashfs, which Apptainer needs; and a container of the newest of this user's SIFs, if any."""
    from runner.engines import sif

    if shutil.which("apptainer") is None:
        return
    try:
        version = sif.version()
        sifs = sorted(sif.own_folder().glob("*.sif"), key=lambda path: path.stat().st_mtime)
    except UserError as error:
        # Of a cache folder that is not known, too, which has a row of its own.
        yield Check("Apptainer", WARN, str(error), NO_CELL.format("apptainer"))
        return
    if why := _lacks() or (_refusal(sifs[-1]) if sifs else None):
        message = known_messages.find(why)
        means = f"{message.means}; {NO_CELL.format('apptainer')}" if message else NO_CELL.format("apptainer")
        fix = message.fix if message else "the message is Apptainer's; `apptainer --debug exec` says more"
        yield Check("Apptainer", WARN, f"Apptainer {version}: {why}", means, fix)
        return
    started = f"a container of {sifs[-1].name} starts" if sifs else "no SIF of ours is here, so none was started"
    yield Check("Apptainer", OK, f"Apptainer {version}; {started}")
    if shutil.which("mksquashfs") is None:
        means = "no SIF can be made here; those that --images-from finds run all the same"
        yield Check("mksquashfs", WARN, "it is not on PATH", means, "install squashfs-tools")


def _lacks() -> str | None:
    """A part of this machine that is missing, in the words of Apptainer's own refusal; root needs neither."""
    if os.getuid() == 0:
        return None
    unshare = shutil.which("unshare")
    if unshare and (said := _said([unshare, "--user", "true"])) is not None:
        return f"failed to create user namespace: {said}"
    if not os.access(_FUSE, os.R_OK | os.W_OK):
        return f"/dev/fuse: {'Permission denied' if _FUSE.exists() else 'No such file or directory'}"
    return None


def _refusal(image: Path) -> str | None:
    """Apptainer's words where it starts no container of a SIF."""
    return _said(["apptainer", "--quiet", "exec", "--containall", "--no-home", str(image), "true"])


def _said(command: list[str]) -> str | None:
    """The last line of a program that failed; None where it did not."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return in_a_line(str(error), 300)
    last = ended.stderr.strip().splitlines()[-1:] or [f"{command[0]} ended with {ended.returncode}"]
    return in_a_line(last[0], 300) if ended.returncode else None
