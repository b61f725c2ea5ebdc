"""What the container of a cell may do and see: no network, no host files but its cache and the data, no capabilities, its own devices."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from runner.engines.base import Prepared, Slot
from runner.engines.docker.cdi import device_request

# The user of Dockerfile.base. It stands in when the runner is root, since a cell never is.
BENCH_USER = 10001

# The same for every cell, and the same in compose.gpu.yml (a test compares them).
PIDS_LIMIT = 4096  # threads count too: TensorFlow and XLA start some per CPU
SHM_BYTES = 1 << 30  # NCCL and data loaders need more than the engine's 64 MiB
# stack: what NVIDIA's own images ask for. Neither memlock (only network cards need it, and cells have none) nor nofile (1024 of Docker 29
# are enough): an engine may itself not have what it would be asked for, and then no container starts
ULIMITS = {"core": 0, "stack": 64 << 20}
TMP_OPTIONS = "rw,exec,nosuid,nodev,mode=1777,size=2g"  # exec: compilers of frameworks load what they write there


def container_options(
    prepared: Prepared,
    arguments: Sequence[str],
    slot: Slot,
    data: Path | None,
    cache: Path,
    user: str,
    cdi: Collection[str] = (),
) -> dict[str, Any]:
    """What the container may do and see, as arguments of docker-py's create(). `cdi` are the names that the engine knows."""
    from docker.types import LogConfig, Mount, Ulimit

    mounts = [Mount("/cache", str(cache.resolve()), type="bind")]
    arguments = list(arguments)
    if data is not None:
        mounts.append(Mount("/data", str(data.resolve()), type="bind", read_only=True))
        arguments += ["--data", "/data"]
    environment = {
        "DLBENCH_CACHE": "/cache",
        "HOME": "/tmp",
        "USER": "bench",
        "LOGNAME": "bench",
        "CUDA_CACHE_PATH": "/cache/cuda",
        "PYTHONFAULTHANDLER": "1",  # a crash, and the watchdog's SIGABRT, write the stack
    }
    options: dict[str, Any] = {
        "image": prepared.digest,
        "entrypoint": list(prepared.command),
        "command": arguments,
        "user": user,
        "read_only": True,
        "network_mode": "none",
        "ipc_mode": "private",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": PIDS_LIMIT,
        "shm_size": SHM_BYTES,
        "tmpfs": {"/tmp": TMP_OPTIONS},
        "mounts": mounts,
        "init": True,  # reaps what a framework leaves, and makes a signal end the cell
        "ulimits": [Ulimit(name=name, soft=limit, hard=limit) for name, limit in ULIMITS.items()],
        "log_config": LogConfig(type="none"),
        "hostname": "cell",
        "environment": environment,
    }
    if slot.cpus:
        options["cpuset_cpus"] = ",".join(map(str, slot.cpus))
    if slot.memory_bytes is not None:
        options["mem_limit"] = options["memswap_limit"] = slot.memory_bytes  # equal: no swap
    if slot.memory_nodes:
        options["cpuset_mems"] = ",".join(map(str, slot.memory_nodes))
    if slot.device_kind == "cuda":
        request = device_request(slot.device_uuids, cdi)
        options["device_requests"] = [request]
        if (
            request["Driver"] == "cdi"
        ):  # then a runtime of NVIDIA's has nothing to add, though CUDA's base images ask it for all GPUs
            environment["NVIDIA_VISIBLE_DEVICES"] = "void"
        # compute: CUDA; utility: nvidia-smi and NVML. The hook reads it from here, and the image's own may say less
        environment["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    else:
        environment["NVIDIA_VISIBLE_DEVICES"] = (
            "void"  # where NVIDIA's runtime is the default one, it gives a CPU cell no GPU
        )
    return options


def prepare_cache(cache: Path, shared: bool) -> str:
    """Make the cache folder, writable for the user that the cell runs as, and return that user as uid:gid.

    It is the runner's own user, or the image's when the runner is root. Where the engine maps users (`shared`:
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
