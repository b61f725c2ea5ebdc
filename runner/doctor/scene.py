"""The facts that the checks of `runner doctor` read, gathered once, and the form of their results."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import known_messages
from runner.engines import host_fault
from runner.engines.cell_cache import Room
from runner.errors import UserError, naming
from runner.machine import clocks
from runner.machine.detect import detect_cpu, detect_gpus, limits
from runner.machine.devices import Gpu
from runner.paths import CACHE_FIX, cache_folder, nearest
from runner.plan.durations import MOST_FILES

OK, WARN, FAIL, SKIPPED, OPEN, LACKING = "ok", "warn", "fail", "skipped", "open", "lacking"


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    status: str  # ok | warn | fail | skipped; open: it could not be told; lacking: what the checks need is not there
    saw: str
    means: str = ""
    fix: str = ""


def advised(said: str, means: str, fix: str) -> tuple[str, str]:
    """(what it means, what to do) of the words of a program: those of a known message, else a row's own."""
    message = known_messages.find(said)
    return (message.means, message.fix) if message else (means, fix)


@dataclass(frozen=True)
class Scene:
    """The facts that the checks read, gathered once."""

    gpus: tuple[Gpu, ...]
    why_no_gpu: str | None
    refused: tuple[str, ...]
    # The version of the loaded kernel module.
    module: str | None
    # A client of the Docker Engine.
    client: Any | None
    why_no_engine: str | None
    info: Mapping[str, Any]
    # An image on this machine, to start a container of.
    image: str | None
    base_image: str | None
    # Why the GPUs that this user may not use are left out.
    hidden: tuple[str, ...] = ()
    # The effect of CUDA_VISIBLE_DEVICES here.
    limits: tuple[str, ...] = ()
    # The clocks that a killed runner left locked, and what became of them.
    clocks: tuple[str, ...] = ()
    # The folder of the results.
    out: Path = Path("results")
    # The engine's own name and version.
    engine: str = ""


@contextlib.contextmanager
def gather(base_image: str | None, image: str | None, out: Path) -> Iterator[Scene]:
    """The facts of this machine: its driver, its GPUs, its engine."""
    from runner.engines.base import EngineError
    from runner.engines.docker.engine import DockerEngine
    from runner.engines.docker.read_back import engine_name
    from runner.images.docker_client import asking, connect

    gpus, refused, why = detect_gpus(detect_cpu().cpus)
    docker = DockerEngine()
    client, info, engine, no_engine = None, {}, "", docker.unavailable()
    try:
        if no_engine is None:
            client = connect()
            with asking():
                info = dict(client.info())
            engine = engine_name(docker.version)
    except EngineError as error:
        no_engine = str(error)
    try:
        test_image = image or _smallest_image(client)
        reasons, hidden = (tuple(gpu.reason for gpu in refused if gpu.hidden is hides) for hides in (False, True))
        visible = limits(gpus, refused, os.environ)
        yield Scene(
            gpus,
            why,
            reasons,
            _kernel_module(),
            client,
            no_engine,
            info,
            test_image,
            base_image,
            hidden,
            visible,
            clocks=tuple(clocks.undo()) if gpus else (),
            out=out,
            engine=engine,
        )
    finally:
        if client is not None:
            client.close()


def _kernel_module() -> str | None:
    with contextlib.suppress(OSError):
        match = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
        return match.group(1) if match else None
    return None


def _smallest_image(client: Any | None) -> str | None:
    """The project's smallest image on this machine: a container of it starts fastest."""
    if client is None:
        return None
    ours = client.images.list(filters={"label": "dlbench.image"}) or client.images.list(name="dlbench/base")
    ours.sort(key=lambda image: int(image.attrs.get("Size") or 0))
    return str(ours[0].id) if ours else None


# Doctor's checks of the folders that a run will use: each is written, run from, linked in and locked, and its room is counted.

# An image with CUDA is some 4 GB to fetch and twice that when it is unpacked.
_ROOM_BYTES = 15 * 10**9

# The largest wheel of the catalog, unpacked beside itself.
_TEMPORARY_BYTES = 4 * 10**9

SHARED_MEMORY = Path("/dev/shm")
_OUT_FIX = "name another folder with --results"


def folders(scene: Scene) -> Iterator[Check]:
    """The cache, the temporary files and the results can be used as a run uses them."""
    yield from of_engine(scene.info, "set `data-root` in /etc/docker/daemon.json to another disk")
    try:
        cache = cache_folder()
    except UserError as error:
        yield Check("cache", FAIL, str(error), "nothing can be prepared or measured", CACHE_FIX)
    else:
        yield from _usable("cache", cache, host_fault.ENVIRONMENT, CACHE_FIX)
    yield _temporary(os.environ.get("TMPDIR") or tempfile.gettempdir())
    yield from _usable("results", scene.out, (host_fault.write, host_fault.lock), _OUT_FIX)
    if SHARED_MEMORY.is_dir() and (saw := host_fault.folder_fault(SHARED_MEMORY, (_some_room,))):
        fix = f"`ls -l {SHARED_MEMORY}` shows what fills it; as root mount it anew, writable and larger"
        yield Check(
            "shared memory",
            WARN,
            f"{SHARED_MEMORY} {saw}",
            "cells of several processes (NCCL, MPI, Gloo) end there",
            fix,
        )


def of_engine(info: Mapping[str, Any], move: str) -> Iterator[Check]:
    """The folder of an engine's images. Only root may write there mostly, so its mount and its room are asked. With noexec it works."""
    root, saw = Path(str(info.get("DockerRootDir") or "/nowhere")), ""
    if not root.exists():
        return
    if os.statvfs(root).f_flag & os.ST_RDONLY:
        saw = f"cannot be written ({os.strerror(errno.EROFS)})"
    elif host_fault.is_short_of_room((root,)):
        saw = "is on a disk that takes nothing more (`df -h` and `df -i` tell which of both is used up)"
    elif os.access(root, os.W_OK):
        saw = host_fault.folder_fault(root, (host_fault.write,)) or ""
    if not saw:
        yield _room("images", root, "`docker system df`, `docker image prune`")
        return
    fix = f"mount it writable, free room there (`docker system prune`), or {move}"
    yield Check("images", FAIL, f"{root} {saw}", "the engine makes no image there and starts no container", fix)


def _usable(name: str, folder: Path, steps: Sequence[host_fault.Step], fix: str) -> Iterator[Check]:
    """A folder, by what a run does there; before it is made, its nearest parent."""
    here = nearest(folder)
    if saw := host_fault.folder_fault(here, steps):
        yield Check(name, FAIL, f"{folder} {saw}", "no run can work there", fix)
    else:
        yield _room(name, here, fix if name == "results" else f"`runner images prune`, or {fix}")


def _temporary(named: str) -> Check:
    """The folder in which pip and builds unpack. Python takes another one where it cannot be written, and pip may not."""
    folder = Path(named)
    fix = "free some room there, or set TMPDIR to another folder"
    if saw := host_fault.folder_fault(nearest(folder), (_some_room,)):
        return Check(
            "temporary", FAIL, f"{folder} {saw}", "pip and builds unpack there, so nothing can be prepared", fix
        )
    room = Room.of(nearest(folder))
    saw = f"{room.bytes / 1e9:.1f} GB free for temporary files ({folder})"
    if room.bytes < _TEMPORARY_BYTES:
        return Check("temporary", WARN, saw, "a wheel of CUDA takes up to 3 GB while it is fetched", fix)
    return Check("temporary", OK, saw)


def _some_room(folder: Path) -> None:
    """A few files with content: a full disk takes the name of a file, and none of its bytes."""
    for at in range(3):
        with naming(folder / f"file-{at}"):
            (folder / f"file-{at}").write_bytes(bytes(1 << 16))


def _room(name: str, folder: Path, fix: str) -> Check:
    """The room of a folder's disk, in bytes and in files."""
    room = Room.of(folder)
    saw = f"{room.bytes / 1e9:.0f} GB free for {name} ({folder})"
    if room.files is not None and room.files < MOST_FILES:
        means = f"an environment takes up to {MOST_FILES} files; `df -i` counts them"
        return Check("disk", WARN, f"{saw}, and room for {room.files} files", means, fix)
    if room.bytes < _ROOM_BYTES:
        return Check("disk", WARN, saw, "a CUDA image takes some 12 GB while it is made", fix)
    return Check("disk", OK, saw)
