"""Doctor's checks of the folders that a run will use: each is written, run from, linked in and locked, and its room is counted."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.doctor.scene import FAIL, OK, WARN, Check, Scene
from runner.engines import folder_probe
from runner.engines.cell_cache import Room
from runner.engines.folder_probe import Step
from runner.engines.host_fault import is_short_of_room
from runner.errors import UserError, naming
from runner.paths import CACHE_FIX, cache_folder, nearest
from runner.plan.disk import MOST_FILES

# An image with CUDA is some 4 GB to fetch and twice that when it is unpacked.
_ROOM_BYTES = 15 * 10**9

# The largest wheel of the catalog, unpacked beside itself.
_TEMPORARY_BYTES = 4 * 10**9

_OUT_FIX = "name another folder with --results"


def folders(scene: Scene) -> Iterator[Check]:
    """The cache, the temporary files and the results can be used as a run uses them."""
    if (root := str(scene.info.get("DockerRootDir") or "")) and Path(root).exists():
        yield _of_engine(Path(root))
    try:
        cache = cache_folder()
    except UserError as error:
        yield Check("cache", FAIL, str(error), "nothing can be prepared or measured", CACHE_FIX)
    else:
        yield from _usable("cache", cache, folder_probe.ENVIRONMENT, CACHE_FIX)
    yield _temporary(os.environ.get("TMPDIR") or tempfile.gettempdir())
    yield from _usable("results", scene.out, (folder_probe.write, folder_probe.lock), _OUT_FIX)


def _of_engine(root: Path) -> Check:
    """The folder of the engine's images. Only root may write there mostly, so its mount and its room are asked. With noexec it works."""
    saw = ""
    if os.statvfs(root).f_flag & os.ST_RDONLY:
        saw = f"cannot be written ({os.strerror(errno.EROFS)})"
    elif is_short_of_room((root,)):
        saw = "is on a disk that takes nothing more (`df -h` and `df -i` tell which of both is used up)"
    elif os.access(root, os.W_OK):
        saw = folder_probe.fault(root, (folder_probe.write,)) or ""
    if not saw:
        return _room("images", root, "`docker system df`, `docker image prune`")
    fix = "mount it writable, free room there (`docker system prune`), or set `data-root` in /etc/docker/daemon.json to another disk"
    return Check("images", FAIL, f"{root} {saw}", "the engine makes no image there and starts no container", fix)


def _usable(name: str, folder: Path, steps: Sequence[Step], fix: str) -> Iterator[Check]:
    """A folder, by what a run does there; before it is made, its nearest parent."""
    here = nearest(folder)
    if saw := folder_probe.fault(here, steps):
        yield Check(name, FAIL, f"{folder} {saw}", "no run can work there", fix)
    else:
        yield _room(name, here, fix if name == "results" else f"`runner images prune`, or {fix}")


def _temporary(named: str) -> Check:
    """The folder in which pip and builds unpack. Python takes another one where it cannot be written, and pip may not."""
    folder = Path(named)
    fix = "free some room there, or set TMPDIR to another folder"
    if saw := folder_probe.fault(nearest(folder), (_some_room,)):
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
