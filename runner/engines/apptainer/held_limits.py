"""Reads back from the kernel what a container of Apptainer has of what it was asked for, before its cell starts.

Apptainer tells nothing of a container that it runs. The kernel tells it of each process.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from runner.engines.docker.container import PIDS_LIMIT
from runner.engines.slots import Slot
from runner.results.on_disk.isolation import Isolation

_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def isolation(version: str, slot: Slot, pid: int) -> Isolation:
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
