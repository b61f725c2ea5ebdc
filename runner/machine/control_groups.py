"""The limits of the control groups that this process is in, of either version of the kernel's interface.

A job of Slurm, a `systemd-run -p CPUQuota=...`, a user's slice and a container each are a group, and a group's limit holds for all below
it. So the limits are read at every group from the own one up to the root, and the least counts (cgroups(7)).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")
# A limit of version 1 that is no limit is the largest number of pages, in bytes.
_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class GroupLimits:
    """The least limits of all groups; None: there is none."""

    cpus: float | None  # seconds of CPU time for each second
    memory_bytes: int | None
    free_processes: int | None = None  # threads and processes that may still begin


def limits(root: Path = _ROOT, own: Path = _SELF) -> GroupLimits:
    """The limits of this process."""
    quotas = [quota for folder in _folders(root, own, "cpu") if (quota := _quota(folder)) is not None]
    memory = [limit for folder in _folders(root, own, "memory") if (limit := _memory(folder)) is not None]
    free = [left for folder in _folders(root, own, "pids") if (left := _free_processes(folder)) is not None]
    return GroupLimits(min(quotas, default=None), min(memory, default=None), min(free, default=None))


def path_of(controller: str, root: Path = _ROOT, own: Path = _SELF) -> Path | None:
    """The group's folder of a controller, of version 2 where the kernel has that; None where it cannot be told."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return None
    paths = {name: path for line in lines if len(line) == 3 for name in line[1].split(",") for path in [line[2]]}
    if (root / "cgroup.controllers").exists():
        return root / paths.get("", "/").lstrip("/")
    return root / controller / paths.get(controller, "/").lstrip("/")


def _folders(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """The folders of the own group and of all above it.

    In a container without a namespace for groups the path is the host's, and what is mounted is the container's: then the root itself is
    the own group.
    """
    folder = path_of(controller, root, own)
    top = root if (root / "cgroup.controllers").exists() else root / controller
    while folder is not None and folder != top and top in folder.parents:
        yield folder
        folder = folder.parent
    yield top


def _memory(folder: Path) -> int | None:
    """Bytes that a group may use; None without a limit."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return limit if 0 < (limit := int((folder / name).read_text())) < _UNLIMITED else None
    return None


def _free_processes(folder: Path) -> int | None:
    """Threads and processes that may still begin in a group; None without a limit."""
    with contextlib.suppress(OSError, ValueError):
        return max(0, int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text()))
    return None


def _quota(folder: Path) -> float | None:
    """CPU seconds a second that a group may use; None without a limit."""
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota_us = int((folder / "cpu.cfs_quota_us").read_text())
        return quota_us / int((folder / "cpu.cfs_period_us").read_text()) if quota_us > 0 else None
    return None
