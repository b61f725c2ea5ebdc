"""What this machine has: its processors as this process may use them, and its GPUs as NVML names them."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class HardwareError(Exception):
    """GPUs were asked for that cannot be had; the message says which, and what there is."""


@dataclass(frozen=True)
class Cpu:
    """The processors of this machine that cells may use."""

    model: str
    cpus: tuple[int, ...]  # numbers of the logical CPUs that this process may run on
    memory_bytes: int


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    index: int
    uuid: str
    model: str
    compute_capability: str
    memory_bytes: int
    driver: str
    cpus: tuple[int, ...]  # the CPUs near it that this process may use


@dataclass(frozen=True)
class Machine:
    """Everything that cells can run on here."""

    cpu: Cpu
    gpus: tuple[Gpu, ...]
    why_no_gpu: str | None  # a clause, when there is none to use

    @property
    def kernel(self) -> str:
        return platform.release()


def detect(asked: str) -> Machine:
    """This machine with the GPUs asked for: `all`, `none`, or indexes and UUIDs with commas. Raises HardwareError."""
    cpu = detect_cpu()
    if asked == "none":
        return Machine(cpu, (), "GPUs were left out by --gpus none")
    found, why = detect_gpus(cpu.cpus)
    if asked == "all":
        return Machine(cpu, found, why)
    return Machine(cpu, choose_gpus(found, asked.split(","), why), None)


def choose_gpus(found: Sequence[Gpu], asked: Sequence[str], why: str | None = None) -> tuple[Gpu, ...]:
    """The GPUs that indexes or UUIDs (or unique beginnings of them) name. Raises HardwareError."""
    if not found:
        raise HardwareError(f"--gpus {','.join(asked)}: {why or 'this machine has no GPU'}; say --gpus none")
    known = ", ".join(f"{gpu.index} ({gpu.model}, {gpu.uuid})" for gpu in found)
    chosen: list[Gpu] = []
    for name in (part.strip() for part in asked):
        if name.isdigit():
            fits = [gpu for gpu in found if gpu.index == int(name)]
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
    return uuid.lower().removeprefix("gpu-")


def detect_cpu() -> Cpu:
    """The CPU, cut down to what the affinity mask and a container's quota leave."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    quota = _cpu_quota()
    if quota is not None:
        allowed = allowed[: max(1, int(quota))]
    return Cpu(_cpu_model(), tuple(allowed), _memory_bytes())


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


def detect_gpus(allowed: Sequence[int]) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs that NVML finds, or none and a clause that says why."""
    try:
        import pynvml as nvml
    except ImportError:
        return (), "nvidia-ml-py, which asks the driver for GPUs, is not installed"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound:
        return (), "there is no NVIDIA driver on this machine"
    except nvml.NVMLError as error:
        return (), f"the NVIDIA driver does not answer ({error}); `nvidia-smi` may say more"
    try:
        gpus = tuple(_gpus(nvml, allowed))
    except nvml.NVMLError as error:
        return (), f"the NVIDIA driver failed while it listed its GPUs ({error})"
    finally:
        nvml.nvmlShutdown()
    return gpus, None if gpus else "the NVIDIA driver knows no GPU"


def _gpus(nvml: Any, allowed: Sequence[int]) -> Iterator[Gpu]:
    driver = _text(nvml.nvmlSystemGetDriverVersion())
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        yield Gpu(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            model=_text(nvml.nvmlDeviceGetName(handle)),
            compute_capability=f"{major}.{minor}",
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            driver=driver,
            cpus=_near(nvml, handle, allowed),
        )


def _near(nvml: Any, handle: Any, allowed: Sequence[int]) -> tuple[int, ...]:
    """The allowed CPUs near a GPU; all of them where the driver does not say."""
    words = ((os.cpu_count() or 1) + 63) // 64
    try:
        mask = nvml.nvmlDeviceGetCpuAffinity(handle, words)
    except nvml.NVMLError:
        return tuple(allowed)
    near = {64 * at + bit for at, word in enumerate(mask) for bit in range(64) if int(word) >> bit & 1}
    return tuple(cpu for cpu in allowed if cpu in near) or tuple(allowed)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
