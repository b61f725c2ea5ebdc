"""What this machine has: its processors as this process may use them, and its GPUs as NVML names them."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class HardwareError(Exception):
    """GPUs were asked for that cannot be had; the message says which, and what there is."""


@dataclass(frozen=True)
class Cpu:
    """The processors of this machine that cells may use."""

    model: str
    cpus: tuple[int, ...]  # numbers of the logical CPUs that this process may run on
    memory_bytes: int
    memory_nodes: tuple[int, ...] = ()  # NUMA nodes that have memory


@dataclass(frozen=True)
class Process:
    """Something that computes on a GPU."""

    pid: int
    program: str
    user: str
    memory_bytes: int | None

    def __str__(self) -> str:
        memory = "" if self.memory_bytes is None else f", {self.memory_bytes / 1e9:.1f} GB"
        return f"{self.program} (process {self.pid}{' of ' + self.user if self.user else ''}{memory})"


@dataclass(frozen=True)
class Gpu:
    """One GPU that cells can run on: a whole one, or a MIG instance of one. None: the driver does not say."""

    index: int  # NVML's; an instance has that of its GPU
    uuid: str
    model: str
    compute_capability: str
    memory_bytes: int
    driver: str
    cpus: tuple[int, ...]  # the CPUs near it that this process may use
    board: str = ""  # UUID of the GPU as a whole: instances of one board share its clocks, power and heat
    instance: int | None = None  # the number of a MIG instance on its board
    cuda_driver: str = ""  # the newest CUDA that the driver runs without compatibility packages
    free_bytes: int | None = None
    numa_node: int | None = None
    pci: str = ""
    pcie_generation: int | None = None
    pcie_width: int | None = None  # lanes
    pcie_width_now: int | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    power_limit_watts: float | None = None
    mig: bool = False
    processes: tuple[Process, ...] = ()
    near: tuple[tuple[str, int], ...] = ()  # the other boards, with how near each is: the more the nearer

    def __post_init__(self) -> None:
        if not self.board:
            object.__setattr__(self, "board", self.uuid)

    @property
    def name(self) -> str:
        """What --gpus calls it: its index, and for an instance its number after a colon."""
        return str(self.index) if self.instance is None else f"{self.index}:{self.instance}"

    def __str__(self) -> str:
        return f"GPU {self.name} ({self.model})"


@dataclass(frozen=True)
class Refused:
    """A GPU that is there and is not used."""

    name: str
    model: str
    reason: str


@dataclass(frozen=True)
class Machine:
    """Everything that cells can run on here."""

    cpu: Cpu
    gpus: tuple[Gpu, ...]
    why_no_gpu: str | None  # a clause, when there is none to use
    refused: tuple[Refused, ...] = ()

    @property
    def kernel(self) -> str:
        return platform.release()


def detect(asked: str, share: bool = False) -> Machine:
    """This machine with the GPUs asked for: `all`, `none`, or indexes and UUIDs with commas. Raises HardwareError.

    A GPU that somebody computes on is refused unless it is to be shared: neither's times would mean anything.
    """
    cpu = detect_cpu()
    if asked == "none":
        return Machine(cpu, (), "GPUs were left out by --gpus none")
    found, refused, why = detect_gpus(cpu.cpus)
    if asked != "all":
        found = choose_gpus(found, asked.split(","), why)
    if not share:
        refused += tuple(map(busy, filter(is_busy, found)))
        found = tuple(gpu for gpu in found if not is_busy(gpu))
    if not found and why is None:
        why = "; ".join(each.reason for each in refused)
    return Machine(cpu, found, why, refused)


def is_busy(gpu: Gpu) -> bool:
    return bool(gpu.processes)


def busy(gpu: Gpu) -> Refused:
    """Why a GPU that somebody computes on is left out."""
    who = ", ".join(map(str, gpu.processes[:3])) + (" and more" if len(gpu.processes) > 3 else "")
    return Refused(gpu.name, gpu.model, f"{gpu} is in use by {who}; wait for it, or share it with --share")


def choose_gpus(found: Sequence[Gpu], asked: Sequence[str], why: str | None = None) -> tuple[Gpu, ...]:
    """The GPUs that indexes (`3`, `3:0` for a MIG instance) or UUIDs or unique beginnings of them name.

    Raises HardwareError.
    """
    if not found:
        raise HardwareError(f"--gpus {','.join(asked)}: {why or 'this machine has no GPU to use'}; say --gpus none")
    known = ", ".join(f"{gpu.name} ({gpu.model}, {gpu.uuid})" for gpu in found)
    chosen: list[Gpu] = []
    for name in (part.strip() for part in asked):
        if name.replace(":", "").isdigit():
            fits = [gpu for gpu in found if name in (gpu.name, str(gpu.index))]
        else:
            fits = [gpu for gpu in found if name and _bare(gpu.uuid).startswith(_bare(name))]
        if len(fits) != 1:
            raise HardwareError(
                f"--gpus: {name!r} names {'no' if not fits else 'more than one'} GPU; there are {known}"
            )
        if fits[0] not in chosen:
            chosen.append(fits[0])
    return tuple(chosen)


def same_gpus(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two lists of UUIDs name the same GPUs. Some frameworks write them without the prefix, or in capitals."""
    return sorted(map(_bare, first)) == sorted(map(_bare, second))


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def detect_cpu() -> Cpu:
    """The CPU, cut down to what the affinity mask and a container's quota leave."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    quota = _cpu_quota()
    if quota is not None:
        allowed = allowed[: max(1, int(quota))]
    return Cpu(_cpu_model(), tuple(allowed), _memory_bytes(), _memory_nodes())


def _memory_nodes() -> tuple[int, ...]:
    found = Path("/sys/devices/system/node").glob("node[0-9]*")
    return tuple(sorted(int(path.name.removeprefix("node")) for path in found))


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def _memory_bytes() -> int:
    """The memory of the machine, or of the container that this runs in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(name).read_text()))
    return total


def _cpu_quota() -> float | None:
    """How many CPUs' time a container's quota allows; None when there is no quota."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return float(quota) / float(period) if quota != "max" else None
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup/cpu")
        quota_us = int((folder / "cpu.cfs_quota_us").read_text())
        return quota_us / int((folder / "cpu.cfs_period_us").read_text()) if quota_us > 0 else None
    return None


def detect_gpus(allowed: Sequence[int]) -> tuple[tuple[Gpu, ...], tuple[Refused, ...], str | None]:
    """The GPUs that NVML finds, those that are broken, and a clause that says why there is none to use."""
    from runner.machine import nvml

    try:
        found, refused = nvml.discover(allowed)
    except nvml.NvmlError as error:
        return (), (), str(error)
    if not found and not refused:
        return (), (), "the NVIDIA driver knows no GPU"
    return found, refused, None
