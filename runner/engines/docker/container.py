"""The limits of a cell's container: no network, no host files but its cache and the data, no capabilities, its own devices; GPUs by
CDI's names, and a container that tries whether CUDA opens them."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import paths, trees
from runner.engines.base import JIT_CACHE_BYTES, JIT_CACHE_FOLDER, EngineError, Launch, ReadyImage, Slot
from runner.images.docker_client import DockerError, asking
from runner.text import last_line

if TYPE_CHECKING:
    from docker.types import DeviceRequest, Mount


# The CDI names under which an engine knows the GPUs, and the request for GPUs that a container is started with.
#
# Docker 28.2 and newer list the names. Docker 25 to 28.1 with CDI switched on list only the folders of the specifications; the names are
# then read from those files (`kind` and `devices[].name` of the Container Device Interface's specification). Both were tried.

CDI_KIND = "nvidia.com/gpu"
# The driver that Docker 29 and later have where dockerd found nvidia-container-runtime-hook on its PATH.
HOOK_DRIVER = "nvidia.runtime-hook"
_HOOK_BY_NAME_SINCE = 29

# A specification of sixteen GPUs has some 100 kB. A larger file is something else.
_MAX_BYTES = 16 << 20


def cdi_name(uuid: str) -> str:
    """The CDI name of a GPU or a MIG instance, as `nvidia-ctk cdi generate` gives it."""
    return f"{CDI_KIND}={uuid}"


def hook_driver(info: Mapping[str, Any]) -> str:
    """The engine's name for NVIDIA's hook; "" where a request without a name is the hook's anyway.

    Docker 29 turns a request without a name into CDI names first, also into names that no specification has (moby#50228, moby#51942).
    """
    major = re.match(r"\d{1,4}", str(info.get("ServerVersion") or ""))
    return HOOK_DRIVER if major and int(major[0]) >= _HOOK_BY_NAME_SINCE else ""


def is_unknown_hook(said: str) -> bool:
    """True if an engine says that it has no hook: it found none on its own PATH when it started. It may have CDI."""
    return "could not select device driver" in said and HOOK_DRIVER in said


def device_request(uuids: Sequence[str], engine_names: Collection[str], hook: str = "") -> DeviceRequest:
    """The request for these GPUs: by CDI name where the engine knows all of them, else through NVIDIA's hook, by its name where it has one.

    When systemd reloads, a container keeps the devices that it got by CDI. It may lose those that it got from the hook.
    """
    from docker.types import DeviceRequest

    names = [cdi_name(uuid) for uuid in uuids]
    if set(names) <= set(engine_names):
        return DeviceRequest(driver="cdi", device_ids=names)
    return DeviceRequest(driver=hook, device_ids=list(uuids), capabilities=[["gpu"]])


def cdi_devices(info: Mapping[str, Any]) -> frozenset[str]:
    """The CDI names that an engine knows, by its `info`. Without CDI there are none."""
    if discovered := info.get("DiscoveredDevices"):
        return frozenset(str(device.get("ID")) for device in discovered if device.get("Source") == "cdi")
    return frozenset(name for path in cdi_specifications(info) for name in _names(path))


def cdi_specifications(info: Mapping[str, Any]) -> list[Path]:
    """The files that the engine reads CDI names from. An engine without CDI, or with CDI switched off, lists no folder."""
    folders = [Path(folder) for folder in info.get("CDISpecDirs") or ()]
    return [path for folder in folders for path in sorted(folder.glob("*")) if path.suffix in (".json", ".yaml")]


def _names(path: Path) -> Iterator[str]:
    """The names in one file. A file that cannot be read gives none: the engine leaves it out too."""
    import yaml

    try:
        if path.stat().st_size > _MAX_BYTES:
            return
        text = path.read_text("utf-8")
        specification = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        yield from [f"{specification['kind']}={device['name']}" for device in specification["devices"]]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return


# The user of Dockerfile.base. It stands in when the runner is root, since a cell never is.
BENCH_USER = 10001

# The same for every cell, and the same in compose.gpu.yml (a test compares them).
PIDS_LIMIT = 4096  # threads count too: TensorFlow and XLA start some per CPU
SHM_BYTES = 1 << 30  # NCCL and data loaders need more than the engine's 64 MiB
# stack: what NVIDIA's own images ask for. memlock is left out: only network cards need it, and cells have none. nofile is left out:
# the 1024 of Docker 29 are enough. A limit above the engine's own would keep every container from starting.
ULIMITS = {"core": 0, "stack": 64 << 20}
# A cell has a mount for each file system below the user's data.
_MOST_DATA_MOUNTS = 64
TMP_OPTIONS = "rw,exec,nosuid,nodev,mode=1777,size=2g"  # exec: compilers of frameworks load what they write there


def container_options(
    launch: Launch, user: str, cdi: Collection[str] = (), groups: Sequence[int] = (), hook: str = ""
) -> dict[str, Any]:
    """The container's limits, as arguments of docker-py's create().

    `cdi` are the names that the engine knows, `groups` those that a GPU cell's user needs to open the GPUs, `hook` the engine's name for
    NVIDIA's hook.
    """
    from docker.types import LogConfig, Mount, Ulimit

    slot, prepared = launch.slot, launch.prepared
    mounts = [Mount("/cache", str(launch.cache.resolve()), type="bind")]
    arguments = list(launch.arguments)
    if launch.data is not None:
        mounts += data_mounts(launch.data.resolve())
        arguments += ["--data", "/data"]
    options: dict[str, Any] = {
        "image": prepared.digest,
        "entrypoint": [*_alarm(slot.seconds, prepared.command[0]), *prepared.command],
        "command": arguments,
        "user": user,
        "read_only": True,
        "network_mode": "none",
        "ipc_mode": "private",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": PIDS_LIMIT,
        # When memory runs out, the kernel ends the cell before the runner and other people's work.
        "oom_score_adj": 1000,
        "shm_size": SHM_BYTES,
        "tmpfs": {"/tmp": TMP_OPTIONS},
        "mounts": mounts,
        "init": True,  # reaps what a framework leaves, and makes a signal end the cell
        "ulimits": [Ulimit(name=name, soft=limit, hard=limit) for name, limit in ULIMITS.items()],
        "log_config": LogConfig(type="none"),
        "hostname": "cell",
        "environment": _environment(slot, cdi),
    }
    if slot.cpus:
        options["cpuset_cpus"] = ",".join(map(str, slot.cpus))
    if slot.memory_bytes is not None:
        options["mem_limit"] = options["memswap_limit"] = slot.memory_bytes  # equal: no swap
    if slot.memory_nodes:
        options["cpuset_mems"] = ",".join(map(str, slot.memory_nodes))
    if slot.device_kind == "cuda":
        options["device_requests"] = [device_request(slot.device_uuids, cdi, hook)]
        if groups:
            options["group_add"] = list(groups)
    return options


def _alarm(seconds: int | None, program: str) -> tuple[str, ...]:
    """A prefix that makes the kernel end a cell after this time: a container outlives a runner that is killed, and its node may get no
    other.

    A process keeps its alarm when it becomes another program. Python sets it, where the cell's own program is Python.
    """
    if seconds is None or not Path(program).name.startswith("python"):
        return ()
    code = "import os, signal, sys; signal.alarm(int(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"
    return (program, "-S", "-c", code, str(seconds))


def data_mounts(data: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Mount]:
    """The mounts that show a folder (an absolute path without links) as /data, which nobody can write. Raises EngineError.

    Before Docker 25 a mount that is read-only leaves what is mounted below it writable. So each file system below is mounted by itself.
    """
    from docker.types import Mount

    below = sorted({point for point in trees.mount_points(mountinfo) if data in point.parents and point.exists()})
    if len(below) > _MOST_DATA_MOUNTS:
        raise EngineError(
            f"--data {data}: {len(below)} file systems are mounted below it, and a cell gets at most {_MOST_DATA_MOUNTS}; "
            "give a folder with fewer"
        )
    mounts = []
    for point in (data, *below):
        mount = Mount(str(Path("/data") / point.relative_to(data)), str(point), type="bind", read_only=True)
        mount["BindOptions"] = {"NonRecursive": True}
        mounts.append(mount)
    return mounts


def _environment(slot: Slot, cdi: Collection[str]) -> dict[str, str]:
    """The variables of a cell's container."""
    environment = {
        "DLBENCH_CACHE": "/cache",
        "HOME": "/tmp",
        "USER": "bench",
        "LOGNAME": "bench",
        "CUDA_CACHE_PATH": f"/cache/{JIT_CACHE_FOLDER}",
        "CUDA_CACHE_MAXSIZE": str(JIT_CACHE_BYTES),
        # A crash, and the watchdog's SIGABRT, write the stack.
        "PYTHONFAULTHANDLER": "1",
    }
    if slot.device_kind != "cuda":
        # If NVIDIA's runtime is the default, a CPU cell gets no GPU from it.
        return environment | {"NVIDIA_VISIBLE_DEVICES": "void"}
    if device_request(slot.device_uuids, cdi)["Driver"] == "cdi":
        # CUDA's base images ask NVIDIA's runtime for all GPUs. The cell has its GPUs by CDI, so the runtime must add none.
        environment["NVIDIA_VISIBLE_DEVICES"] = "void"
    # compute: CUDA. utility: nvidia-smi and NVML. The hook reads it here, since an image's own value may hold less.
    environment["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return environment


def maps_users(info: Mapping[str, Any]) -> bool:
    """True if the engine gives a container's users other numbers on the host: rootless, or a user namespace."""
    return any("rootless" in option or "userns" in option for option in info.get("SecurityOptions") or ())


def device_groups(info: Mapping[str, Any], devices: Path = Path("/dev")) -> list[int]:
    """The groups that may use NVIDIA's device nodes where not everybody may, as the driver's NVreg_DeviceFileMode can say.

    A container's user has no group of the host's but those that are added. Root's group is never added: it would open more than GPUs.
    If the engine maps users, no group of the host has a number inside.
    """
    if maps_users(info):
        return []
    groups = set()
    for node in devices.glob("nvidia*"):
        status = node.stat()
        if not stat.S_ISDIR(status.st_mode) and status.st_mode & 0o066 == 0o060:
            groups.add(status.st_gid)
    return sorted(groups - {0})


def prepare_cache(cache: Path, shared: bool) -> str:
    """Make the cache folder, writable for the user that the cell runs as, and return that user as uid:gid.

    It is the runner's own user, or the image's when the runner is root. If the engine maps users (`shared`:
    rootless, or a user namespace) the cell's user has another number on the host, and the folder is opened as /tmp is.
    """
    cache.mkdir(parents=True, exist_ok=True)
    if shared:
        cache.chmod(0o1777)
        return f"{BENCH_USER}:{BENCH_USER}"
    if os.getuid() == 0:
        os.chown(cache, BENCH_USER, BENCH_USER)
        return f"{BENCH_USER}:{BENCH_USER}"
    return f"{os.getuid()}:{os.getgid()}"


# Containers with GPUs as cells get them, that say what they see: for `runner doctor`.

# The variable tells the way by which the GPUs came: the engine names them in it for the hook, CDI's specification sets it to "void", and so
# does the runner where it asks by CDI names. The bench asks CUDA.
_PROBE = (
    "import json, os; from bench import cuda; "
    "print(json.dumps([os.environ.get('NVIDIA_VISIBLE_DEVICES', ''), cuda.uuids(), cuda.why_none()]))"
)


@dataclass(frozen=True)
class Seen:
    """The GPUs that CUDA opens in a container, why it opens none, and the way by which they came."""

    uuids: tuple[str, ...]
    reason: str
    through: str


def trial_of_cuda(client: Any, info: Mapping[str, Any], image: str, uuids: Sequence[str]) -> Seen | None:
    """None where the image has no bench. Raises EngineError."""
    try:
        printed = trial_output(client, info, image, uuids, ("python", "-c", _PROBE))
    except DockerError as error:
        if "executable file not found" in error.said:
            return None
        raise
    try:
        visible, opened, reason = json.loads(last_line(printed))
        return Seen(tuple(map(str, opened)), str(reason or ""), "CDI" if visible in ("", "void") else "NVIDIA's hook")
    except (ValueError, TypeError):
        return None


def trial_output(client: Any, info: Mapping[str, Any], image: str, uuids: Sequence[str], command: Sequence[str]) -> str:
    """The output of a command in a container that has a cell's limits and these GPUs. Raises EngineError."""
    try:
        return _output(client, info, image, uuids, command, hook_driver(info))
    except DockerError as error:
        if not is_unknown_hook(error.said):
            raise
    return _output(client, info, image, uuids, command, "")


def _output(
    client: Any, info: Mapping[str, Any], image: str, uuids: Sequence[str], command: Sequence[str], hook: str
) -> str:
    from docker.types import LogConfig

    slot, prepared = Slot("cuda", tuple(uuids), (), None), ReadyImage(None, image, (command[0],))
    cells = paths.cache_folder() / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=cells, ignore_cleanup_errors=True) as folder:
        cache = Path(folder)
        user = prepare_cache(cache, shared=maps_users(info))
        names, groups = cdi_devices(info), device_groups(info)
        options = container_options(Launch(prepared, command[1:], slot, "", cache), user, names, groups, hook)
        # A cell's output is read while it is printed; this one's afterwards.
        options["log_config"] = LogConfig(type="json-file")
        with asking():
            container = client.containers.create(**options)
            # A container that cannot be started stays, and `run` of docker-py leaves it.
            try:
                container.start()
                container.wait()
                return bytes(container.logs()).decode("utf-8", "replace")
            finally:
                container.remove(force=True)
