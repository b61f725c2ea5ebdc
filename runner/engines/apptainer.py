"""Reads back from the kernel what a container of Apptainer has of what it was asked for, before its cell starts.

Apptainer tells nothing of a container that it runs. The kernel tells it of each process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runner.catalog import architectures, guarantees
from runner.catalog.addresses import ForeignImage
from runner.engines import sif
from runner.engines.base import Engine, Exit, Launch, ReadyImage, Settings, Slot
from runner.engines.docker.container import BENCH_USER, PIDS_LIMIT, prepare_cache
from runner.engines.docker.engine import DockerEngine
from runner.engines.podman import PodmanEngine
from runner.engines.process import keeper
from runner.engines.process.process import (
    KEPT,
    SCRATCH_VARIABLE,
    LocalRunning,
    cell_environment,
    keep_below,
    make_scratch,
    sweep_scratch,
)
from runner.errors import BadFileError, EngineError
from runner.images.recipe import recipe as make_recipe
from runner.paths import cache_folder, nearest
from runner.results.on_disk.isolation import Isolation

if TYPE_CHECKING:
    from runner.catalog.images import Image


_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def held_isolation(version: str, slot: Slot, pid: int) -> Isolation:
    """The fact of the container that a process is in; `pid` is its number on the host. Raises OSError where it has ended."""
    process = Path("/proc") / str(pid)
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    interfaces = {line.split(":")[0].strip() for line in (process / "net" / "dev").read_text().splitlines()[2:]}
    has_capability = any(int(status[name], 16) for name in _CAPABILITIES)
    limits: dict[str, list[str | int | bool | None]] = {
        "network": ["none", "none" if interfaces == {"lo"} else "some"],
        "read-only root": [True, _is_read_only(process)],
        "processes": [PIDS_LIMIT, _of_cgroup(process, "pids.max")],
        "capabilities": ["none", "some" if has_capability else "none"],
        "seccomp": ["default", "none" if int(status["Seccomp"]) == 0 else "default"],
        "no new privileges": [True, status["NoNewPrivs"].strip() == "1"],
    }
    if slot.cpus:
        limits["CPUs"] = [_list(slot.cpus), _list(os.sched_getaffinity(pid))]
    if slot.memory_bytes is not None:
        limits["memory"] = [slot.memory_bytes, _of_cgroup(process, "memory.max")]
    if slot.memory_nodes:
        limits["memory nodes"] = [_list(slot.memory_nodes), status["Mems_allowed_list"].strip()]
    return {"engine": f"Apptainer {version}", "rootless": os.getuid() != 0, "limits": limits}


def _list(numbers: tuple[int, ...] | set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _is_read_only(process: Path) -> bool:
    """True if nothing can be written to the root of the process's file system."""
    mounts = [line.split() for line in (process / "mounts").read_text().splitlines()]
    # Of mounts one upon the other, the last is seen.
    options = [fields[3] for fields in mounts if fields[1] == "/"][-1]
    return "ro" in options.split(",")


def _of_cgroup(process: Path, limit: str) -> int | None:
    """A limit of the process's own group of cgroups v2; None where it has none."""
    for line in (process / "cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            with contextlib.suppress(OSError, ValueError):
                return int((Path("/sys/fs/cgroup") / line[len("0::/") :] / limit).read_text())
    return None


# Cells in containers of Apptainer, as clusters have it: no service runs, and a user needs no rights.
#
# A container is a process of this machine, so it is started, kept and ended as the cells of the engine `venv` are.

# containall: its own processes, /tmp, /dev and environment. no-privs: no capability, also for root. The last two leave the loopback
# interface only.
_CONTAINED = ("--containall", "--no-home", "--no-privs", "--no-eval", "--net", "--network", "none")

# The container waits at this pipe until its limits were read back. Apptainer lets nobody else set HOME, and does not take the folder of
# the bench from the image (Dockerfile.base).
_GATE = ".gate"
_WAIT = f'read -r _ < /tmp/{_GATE} || exit; [ ! -d /opt/dlbench ] || cd /opt/dlbench; HOME=/tmp exec "$@"'

# A container starts within half a second from a local disk.
_START_SECONDS = 120.0

# Apptainer's words for a file that begins as a SIF does and is none.
_NO_SIF = "image format not recognized"

# The name of a SIF of ours, as a helper has it open.
_OWN_SIF = re.compile(r"@[^/]*\+[0-9a-f]{64}\.sif$")


class ApptainerEngine(Engine):
    """The engine `apptainer`."""

    name = "apptainer"
    loads_images = True

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()

    @functools.cached_property
    def version(self) -> str:
        """Apptainer's version. Raises EngineError."""
        return sif.version()

    @functools.cached_property
    def _builder(self) -> DockerEngine | None:
        """The engine whose images SIFs are made of; None where neither answers."""
        engines = (DockerEngine(self._settings), PodmanEngine(self._settings))
        return next((engine for engine in engines if engine.why_no_build() is None), None)

    def unavailable(self) -> str | None:
        try:
            return None if self.version else ""
        except EngineError as error:
            return str(error)

    def guarantees(self) -> str:
        return guarantees.sentence(*self.kind())

    def kind(self) -> tuple[str, bool, str]:
        """The engine's key in that table."""
        return self.name, os.getuid() != 0, "2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "1"

    def images_folder(self) -> Path | None:
        """The folder of SIFs, or before the first one its nearest existing parent."""
        return nearest(cache_folder())

    def _sif(self, image: Image) -> Path | None:
        """The SIF of an image in the folder of --images-from, or one that was made here before."""
        recipe = make_recipe(image, self._settings.base_image)
        folders = [*filter(None, [self._settings.images_from]), sif.own_folder()]
        return next((path for folder in folders if (path := sif.find(folder, recipe))), None)

    def unfit(self, image: Image) -> str | None:
        """Why this image cannot be had as a SIF; None when it can."""
        if reason := architectures.why_not(image, architectures.kernel_machine()):
            return reason
        if self._sif(image):
            return None
        folders = [*filter(None, [self._settings.images_from]), sif.own_folder()]
        if self._builder is None and (
            other := next((path for each in folders for path in sif.of_other_inputs(each, image.name)), None)
        ):
            return (
                f"{other} is of other inputs than this release and this --base-image have ({self._settings.base_image or 'none'}); "
                f"give the --base-image that it was made with, or export it anew: `runner images export {image.name} --as sif --to FOLDER`"
            )
        if self._builder is None:
            return (
                f"there is no SIF of it, and no Docker Engine or Podman to make one of; `runner images export {image.name} --as sif "
                "--to FOLDER` makes it on another machine, and --images-from FOLDER finds it"
            )
        return self._builder.unfit(image)

    def unobtainable(self, image: Image) -> str | None:
        return None if self._builder is None or self._sif(image) else self._builder.unobtainable(image)

    def parts(self, image: Image) -> Mapping[str, int]:
        """Bytes to fetch before a SIF can be made; none where it is there."""
        return {} if self._builder is None or self._sif(image) else self._builder.parts(image)

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        """Find the image's SIF, or make it. Raises EngineError."""
        recipe = make_recipe(image, self._settings.base_image)
        path, shared, docker = None, self._settings.images_from, self._builder
        if shared is not None:
            path = sif.find(shared, recipe) or sif.unpack(shared, recipe, sif.own_folder(), say)
        if path is None and docker is not None and (docker.built(recipe) or not self._sif(image)):
            docker.prepare(image, say)
            path = sif.export(docker.client, recipe, str(docker.built(recipe)), sif.own_folder(), say)
        path = path or self._sif(image)
        if path is None:
            raise EngineError(f"{image.name}: {self.unfit(image)}")
        return ReadyImage(image, sif.image_of(path), (str(path.resolve()), "python", "-m", "bench"))

    def start(self, launch: Launch) -> ApptainerRunning:
        """Start a cell in a container of its own. `prepared.command` begins with the SIF. Raises EngineError."""
        prepared, slot = launch.prepared, launch.slot
        path, *program = prepared.command
        user = prepare_cache(launch.cache, shared=False)
        scratch = make_scratch()
        os.mkfifo(scratch / _GATE)
        binds = [f"{launch.cache.resolve()}:/cache", f"{scratch}:/tmp", f"{scratch}:/var/tmp"]
        arguments = list(launch.arguments)
        if launch.data is not None:
            binds.append(f"{launch.data.resolve()}:/data:ro")
            arguments += ["--data", "/data"]
        foreign = isinstance(prepared.source, ForeignImage)
        binds += [sif.BIND] if foreign else []
        options = [
            *_CONTAINED,
            "--pwd",
            sif.FOLDER if foreign else "/",
            *(word for bind in binds for word in ("--bind", bind)),
        ]
        if slot.device_kind == "cuda":
            options.append("--nv")
        if os.getuid() == 0:
            # Root could write the kernel's settings without any capability, since their files are root's.
            for mine in (scratch, scratch / _GATE):
                os.chown(mine, BENCH_USER, BENCH_USER)
            uid, gid = user.split(":")
            options += ["--security", f"uid:{uid}", "--security", f"gid:{gid}"]
        command = ["/usr/bin/env", "apptainer", "--quiet", "exec", *options, path, "sh", "-c", _WAIT, "sh"]
        environment = _environment(slot, scratch, launch.label)
        environment |= {"APPTAINERENV_PYTHONPATH": sif.FOLDER} if foreign else {}
        process, lifeline = keep_below([*command, *program, *arguments], environment, slot, scratch)
        running = ApptainerRunning(process, lifeline, scratch)
        refusal = None
        try:
            running.admit(self.version, slot)
        except BaseException:  # Ctrl-C too must leave nothing behind
            running.stop()
            why = running.wait().log_tail.strip().splitlines()[-1:]
            if running.started or not why:
                raise
            refusal = _not_started(prepared, why[0])
        if refusal:
            raise refusal
        return running

    def sweep(self) -> int:
        """Remove what runners that died left: scratch folders, and Apptainer's helpers."""
        removed = sweep_scratch()
        end_helpers()
        return removed


def _not_started(prepared: ReadyImage, why: str) -> EngineError:
    """The error of a container that did not start. Of a user's own file that is no SIF it is a mistake of the command line."""
    error = BadFileError if isinstance(prepared.source, ForeignImage) and _NO_SIF in why else EngineError
    return error(f"{prepared.image.name}: Apptainer started no container: {why[:300]}")


def _environment(slot: Slot, scratch: Path, label: str) -> dict[str, str]:
    """Apptainer's own environment. What begins with APPTAINERENV_ is the container's, which gets nothing else of the host's."""
    inside = cell_environment(slot, Path("/cache"), Path("/tmp"))
    inside = {name: value for name, value in inside.items() if name not in (*KEPT, "HOME", "PYTHONPATH")}
    inside |= {"USER": "bench", "LOGNAME": "bench", "DLBENCH_RUN": label, SCRATCH_VARIABLE: str(scratch)}
    own = {name: os.environ[name] for name in KEPT if name in os.environ}
    own |= {"HOME": str(scratch), "TMPDIR": str(scratch)}
    return own | {f"APPTAINERENV_{name}": value for name, value in inside.items()}


class ApptainerRunning(LocalRunning):
    """A started container."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int, scratch: Path) -> None:
        super().__init__(process, lifeline, scratch)
        # The cell's first process, by its number on the host.
        self._cell: int | None = None
        self._isolation: Isolation | None = None

    @property
    def started(self) -> bool:
        """True once the container has come to the gate, and its limits were read back."""
        return self._isolation is not None

    def admit(self, version: str, slot: Slot) -> None:
        """Read back the limits of the container that waits at the gate, and let its cell begin. Raises EngineError."""
        gate, end = self.scratch() / _GATE, time.monotonic() + _START_SECONDS
        while True:
            # It opens when the container has opened it to read.
            with contextlib.suppress(OSError):
                opened = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
                break
            if self._process.poll() is not None or time.monotonic() > end:
                raise EngineError("the container did not start")
            time.sleep(0.01)
        try:
            self._cell = next(pid for pid in keeper.descendants(self._process.pid) if _is_first_in_container(pid))
            self._isolation = held_isolation(version, slot, self._cell)
            os.write(opened, b"\n")
        except (OSError, StopIteration) as error:
            raise EngineError(f"the limits of the container could not be read back ({error})") from error
        finally:
            os.close(opened)
        gate.unlink()

    def dump(self) -> None:
        """Signal the cell itself: Apptainer would end with its own stack."""
        if self._cell is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._cell, signal.SIGABRT)

    def wait(self) -> Exit:
        """Wait for the container's end. Its helpers end with it, or here where its keeper was killed."""
        ended = super().wait()
        end_helpers()
        return Exit(ended.code, ended.out_of_memory, ended.log_tail, ended.left, self._isolation)


def _numbers(pid: int | str) -> list[str]:
    """The numbers of a process, from this machine's own to the one in its container."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))


def _is_first_in_container(pid: int) -> bool:
    """True for a process of a container, unless it is the container's init."""
    with contextlib.suppress(OSError):
        numbers = _numbers(pid)
        return len(numbers) > len(_numbers("self")) and numbers[-1] != "1"
    return False


def end_helpers() -> None:
    """Kill the programs that mount SIFs of ours for cells that are gone: they outlive an Apptainer that is killed.

    Each is in the session of its cell's keeper. A session without its leader has lost its keeper.
    """
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if not (folder / "comm").read_text().startswith("squashfuse"):
                continue
            pid = int(folder.name)
            mounts_ours = any(_OWN_SIF.search(str(fd.readlink())) for fd in (folder / "fd").iterdir())
            if mounts_ours and not Path(f"/proc/{os.getsid(pid)}").exists():
                keeper.kill([pid])
