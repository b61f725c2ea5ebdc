"""The CPU's telemetry while a cell runs: the cell's CPU time and memory, all CPU time of the machine, the clock of the cell's CPUs, the
energy of the CPU's packages.

The first two come from the cell's control group, or from psutil where the cell has none of its own. Most virtual machines give neither
clock nor energy: those columns are empty there.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The limits of the control groups that this process is in, of either version of the kernel's interface.
#
# A job of Slurm, a `systemd-run -p CPUQuota=...`, a user's slice and a container each are a group, and a group's limit holds for all
# below it. So the limits are read at every group from the own one up to the root, and the least counts (cgroups(7)).

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


def group_limits(root: Path = _ROOT, own: Path = _SELF) -> GroupLimits:
    """The limits of this process."""
    quotas = [quota for folder in _folders(root, own, "cpu") if (quota := _quota(folder)) is not None]
    memory = [limit for folder in _folders(root, own, "memory") if (limit := _memory(folder)) is not None]
    free = [left for folder in _folders(root, own, "pids") if (left := _free_processes(folder)) is not None]
    return GroupLimits(min(quotas, default=None), min(memory, default=None), min(free, default=None))


def group_path(controller: str, root: Path = _ROOT, own: Path = _SELF) -> Path | None:
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
    folder = group_path(controller, root, own)
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


Row = dict[str, Any]

_RETRY_SECONDS = 0.1
# The kernel adds up a control group's figures at each read, which costs more than NVML's answers.
_GROUP_SECONDS = 0.5
_SLOW_SECONDS = 1.0  # and so often at most comes psutil's walk over all processes, and a look at the clocks

_CPUS = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
# The fields of its first line: user, nice, system, idle, iowait, irq, softirq, steal. Of the others the first two count already.
_FIELDS, _IDLE = 8, (3, 4)
_POWERCAP = Path("/sys/class/powercap")


class ProcessSampler:
    """CPU time and memory of one cell: of its control group where it has one of its own, else of its processes by psutil."""

    def __init__(self, pid: Callable[[], int | None], clock: CpuClock) -> None:
        self._pid = pid
        self._clock = clock
        self._next_clock = 0.0
        self._found: int | None = None
        self._files: tuple[Path, Path] | None = None
        self._next = 0.0

    def sample(self, now: float) -> Row | None:
        """One row; None where nothing is known yet, or any more."""
        if now < self._next:
            return None
        if self._found is None:
            self._found = self._pid()
            if self._found is None:
                self._next = now + _RETRY_SECONDS
                return None
            self._files = control_group(self._found)
        try:
            if self._files:
                self._next = now + _GROUP_SECONDS
                seconds, memory = read_group(*self._files)
            else:
                self._next = now + _SLOW_SECONDS
                seconds, memory = read_tree(self._found)
        # A kit may be on a machine that psutil is not built for.
        except (OSError, ValueError, ProcessLookupError, ImportError):
            self._next = now + _SLOW_SECONDS
            return None
        row: Row = {"device": "cpu", "unix": now, "cpu_seconds": seconds, "memory_bytes": memory}
        with contextlib.suppress(OSError, ValueError):
            row["machine_cpu_seconds"] = machine_seconds()
        if now >= self._next_clock:
            self._next_clock = now + _SLOW_SECONDS
            row["cpu_megahertz"] = self._clock.megahertz()
        return row


def control_group(pid: int) -> tuple[Path, Path] | None:
    """The files with a process's CPU time and memory; None where its control group is the runner's own."""
    try:
        if Path("/proc/self/cgroup").read_text() == Path(f"/proc/{pid}/cgroup").read_text():
            return None
    except OSError:
        return None
    own = Path(f"/proc/{pid}/cgroup")
    cpu, memory = (group_path(name, own=own) for name in ("cpuacct", "memory"))
    if cpu is None or memory is None:
        return None
    files = cpu / "cpu.stat", memory / "memory.current"
    if not files[1].exists():
        files = cpu / "cpuacct.usage", memory / "memory.usage_in_bytes"
    return files if all(file.exists() for file in files) else None


def read_group(cpu: Path, memory: Path) -> tuple[float, int]:
    """(CPU seconds, bytes) of a control group, of either version."""
    used = _content(cpu)
    if cpu.name == "cpu.stat":
        seconds = next(int(line.split()[1]) for line in used.splitlines() if line.startswith("usage_usec")) / 1e6
    else:
        seconds = int(used) / 1e9
    return seconds, int(_content(memory))


def machine_seconds() -> float:
    """CPU seconds of all that ran on this machine so far, and of what its host gave to other machines meanwhile."""
    ticks = [int(field) for field in _content(_STAT).split("\n", 1)[0].split()[1 : 1 + _FIELDS]]
    return sum(each for at, each in enumerate(ticks) if at not in _IDLE) / os.sysconf("SC_CLK_TCK")


def _content(path: Path) -> str:
    """A small file of the kernel. Python's file objects cost too much at every tick of every cell."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096).decode("ascii")
    finally:
        os.close(descriptor)


def read_tree(pid: int) -> tuple[float, int]:
    """(CPU seconds, resident bytes) of a process and all below it. Raises ProcessLookupError when it is gone."""
    import psutil

    try:
        top = psutil.Process(pid)
        processes = [top, *top.children(recursive=True)]
        seconds, memory = 0.0, 0
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                times = process.cpu_times()
                seconds += times.user + times.system
                # The time of its children that have ended: a counter must not fall. Only Linux has it.
                seconds += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                memory += process.memory_info().rss
    except psutil.Error:
        raise ProcessLookupError(pid) from None
    return seconds, memory


class CpuClock:
    """The clock of some CPUs."""

    def __init__(self, cpus: Sequence[int]) -> None:
        files = [_CPUS / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq" for cpu in cpus]
        self._files = [file for file in files if file.exists()]
        self._cpus = frozenset(cpus)

    def megahertz(self) -> float | None:
        """Their mean; None where the machine does not say, or gives only the rated clock."""
        try:
            if self._files:
                return _mean(int(_content(file)) / 1000 for file in self._files)
            return _mean(self._measured()) if _measures_clocks() else None
        except (OSError, ValueError):
            return None

    def _measured(self) -> Iterable[float]:
        cpu = -1
        for line in _CPUINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "processor":
                cpu = int(value)
            elif name.strip() == "cpu MHz" and cpu in self._cpus:
                yield float(value)


@functools.cache
def _measures_clocks() -> bool:
    """True if /proc/cpuinfo has the present clock: without these two counters the kernel repeats the clock that it saw at its start."""
    with contextlib.suppress(OSError):
        return any(
            line.startswith("flags") and "aperfmperf" in line.split() for line in _CPUINFO.read_text().splitlines()
        )
    return False


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


class PackageEnergy:
    """The energy of the CPU's packages and of the memory beside them, by the counters of RAPL; AMD's have Intel's name too.

    Kernels since 5.10 let only root read them: elsewhere there is no energy, rather than that of a part.
    """

    def __init__(self) -> None:
        self._counters: list[tuple[Path, int]] = []
        self._last: list[int] = []
        self._joules = 0.0
        with contextlib.suppress(OSError, ValueError):
            zones = [
                zone for zone in sorted(_POWERCAP.glob("intel-rapl:*")) if _is_counted(_content(zone / "name").strip())
            ]
            counters = [(zone / "energy_uj", int(_content(zone / "max_energy_range_uj"))) for zone in zones]
            self._last = [int(_content(file)) for file, _ in counters]
            self._counters = counters

    def joules(self) -> float | None:
        """How much they took since this was made; None where it cannot be read."""
        if not self._counters:
            return None
        try:
            now = [int(_content(file)) for file, _ in self._counters]
        except (OSError, ValueError):
            return None
        for (_, most), before, after in zip(self._counters, self._last, now, strict=True):
            # The counter starts again at 0 after its largest value.
            microjoules = after - before + (most if after < before else 0)
            self._joules += microjoules / 1e6
        self._last = now
        return self._joules


def _is_counted(zone: str) -> bool:
    """`core` and `uncore` are parts of their package, `psys` is more than the CPU."""
    return zone.startswith("package") or zone == "dram"
