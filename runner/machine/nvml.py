"""NVIDIA's management library on the host: which GPUs there are, how they are connected, what runs on them.

A question that a GPU does not support has the answer None; an error that says that the driver or the GPU is gone is raised.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from runner.errors import UserError
from runner.machine.devices import Gpu, Process, Refused

# NVML's errors for a question that a healthy GPU does not support.
_NO_ANSWER = ("NVMLError_NotSupported", "NVMLError_NoPermission", "NVMLError_FunctionNotFound", "NVMLError_NotFound")

# How near two GPUs are: NVLink before everything, then what PCI Express has between them (NVML's topology levels).
NVLINK = 6
_NEARNESS = {0: 5, 10: 4, 20: 3, 30: 2, 40: 1, 50: 0}


Answer = TypeVar("Answer")


class NvmlError(UserError):
    """There is no driver to ask; the message is a clause."""


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """pynvml, initialised. Raises NvmlError."""
    try:
        import pynvml as nvml
    except ImportError:
        raise NvmlError("nvidia-ml-py, which asks the driver for GPUs, is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound:
        raise NvmlError("there is no NVIDIA driver on this machine") from None
    except nvml.NVMLError as error:
        raise NvmlError(f"the NVIDIA driver does not answer ({error}); `runner doctor` says more") from None
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def ask(nvml: Any, question: Callable[..., Answer], *arguments: Any) -> Answer | None:
    """One question; None where the GPU or the driver has no answer to it."""
    try:
        return question(*arguments)
    except nvml.NVMLError as error:
        if type(error).__name__ in _NO_ANSWER:
            return None
        raise


def discover(allowed: Sequence[int]) -> tuple[tuple[Gpu, ...], tuple[Refused, ...]]:
    """Every GPU that cells can run on, MIG instances in the place of their GPU, and those that answer with an error.

    `allowed` are the CPUs that this process may use. Raises NvmlError.
    """
    with session() as nvml:
        try:
            driver = text(nvml.nvmlSystemGetDriverVersion())
            number = ask(nvml, nvml.nvmlSystemGetCudaDriverVersion) or 0
            cuda = f"{number // 1000}.{number % 1000 // 10}" if number else ""
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise NvmlError(f"the NVIDIA driver failed while it listed its GPUs ({error})") from None
        gpus: list[Gpu] = []
        refused: list[Refused] = []
        handles: dict[str, Any] = {}
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                board = _board(nvml, handle, index, driver, cuda, allowed)
                parts = list(_instances(nvml, handle, board)) if board.mig else [board]
            except nvml.NVMLError as error:
                refused.append(
                    Refused(str(index), "", f"GPU {index} answers with an error ({error}); it needs a reset")
                )
                continue
            if any("/" in part.uuid for part in parts):  # MIG-GPU-.../1/0, of drivers before 470
                why = "the driver names its instances in a way that no cell can confirm; 470 or newer gives each a UUID"
                refused.append(Refused(board.name, board.model, f"{board}: {why}"))
                continue
            if not parts:
                why = "MIG is on and it is cut into no instance; `nvidia-smi mig -cgi ... -C` makes some"
                refused.append(Refused(board.name, board.model, f"{board}: {why}"))
            handles[board.uuid] = handle
            gpus += parts
        near = _nearness(nvml, handles)
        return tuple(replace(gpu, near=near[gpu.board]) for gpu in gpus), tuple(refused)


def _board(nvml: Any, handle: Any, index: int, driver: str, cuda: str, allowed: Sequence[int]) -> Gpu:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    uuid = text(nvml.nvmlDeviceGetUUID(handle))
    mig = ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    ecc = ask(nvml, nvml.nvmlDeviceGetEccMode, handle)
    limit = ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    persistence = ask(nvml, nvml.nvmlDeviceGetPersistenceMode, handle)
    pci = ask(nvml, nvml.nvmlDeviceGetPciInfo_v3, handle)
    return Gpu(
        index=index,
        uuid=uuid,
        model=text(nvml.nvmlDeviceGetName(handle)),
        compute_capability=f"{major}.{minor}",
        memory_bytes=int(memory.total),
        driver=driver,
        cpus=_near_cpus(nvml, handle, allowed),
        board=uuid,
        cuda_driver=cuda,
        free_bytes=int(memory.free),
        numa_node=_numa_node(nvml, handle),
        pci=text(pci.busId) if pci else "",
        pcie_generation=ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        pcie_width_now=ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        ecc=None if ecc is None else bool(ecc[0]),
        persistence=None if persistence is None else bool(persistence),
        power_limit_watts=None if limit is None else limit / 1000,
        mig=bool(mig and mig[0]),
        processes=_processes(nvml, handle),
    )


def _instances(nvml: Any, handle: Any, board: Gpu) -> Iterator[Gpu]:
    """The MIG instances of a GPU, each as a GPU of its own: that is what CUDA makes of them."""
    for number in range(ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if instance is None:
            continue
        memory = nvml.nvmlDeviceGetMemoryInfo(instance)
        yield replace(
            board,
            uuid=text(nvml.nvmlDeviceGetUUID(instance)),
            model=text(nvml.nvmlDeviceGetName(instance)),
            instance=number,
            memory_bytes=int(memory.total),
            free_bytes=int(memory.free),
            processes=_processes(nvml, instance) or board.processes,
        )


def _processes(nvml: Any, handle: Any) -> tuple[Process, ...]:
    """Who computes on a GPU, by the host's process ids. Desktops that only draw are not among them."""
    processes = ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return tuple(Process(process.pid, *_who(process.pid), process.usedGpuMemory) for process in processes)


def _who(pid: int) -> tuple[str, str]:
    """(program, user) of a process, as far as this process may see it."""
    try:
        folder = Path(f"/proc/{pid}")
        owner = folder.stat().st_uid
        program = (folder / "comm").read_text().strip()
    except OSError:
        return "a process that cannot be seen from here", ""
    try:
        return program, pwd.getpwuid(owner).pw_name
    except KeyError:
        return program, str(owner)


def _near_cpus(nvml: Any, handle: Any, allowed: Sequence[int]) -> tuple[int, ...]:
    """The allowed CPUs near a GPU; all of them where the driver does not say."""
    mask = ask(nvml, nvml.nvmlDeviceGetCpuAffinity, handle, (_cpu_numbers() + 63) // 64)
    near = set(_bits(mask or ()))
    return tuple(cpu for cpu in allowed if cpu in near) or tuple(allowed)


def _cpu_numbers() -> int:
    """One more than the highest number of a CPU. Numbers may have gaps, so counting them is not enough."""
    with contextlib.suppress(OSError, ValueError):
        last = Path("/sys/devices/system/cpu/possible").read_text().strip().replace("-", ",").split(",")[-1]
        return int(last) + 1
    return os.cpu_count() or 1


def _numa_node(nvml: Any, handle: Any) -> int | None:
    mask = ask(nvml, nvml.nvmlDeviceGetMemoryAffinity, handle, 4, nvml.NVML_AFFINITY_SCOPE_NODE)
    return next(_bits(mask or ()), None)


def _bits(words: Sequence[int]) -> Iterator[int]:
    """The places of the ones in 64-bit words."""
    for at, word in enumerate(words):
        yield from (64 * at + bit for bit in range(64) if int(word) >> bit & 1)


def _nearness(nvml: Any, handles: dict[str, Any]) -> dict[str, tuple[tuple[str, int], ...]]:
    """For each GPU the others, with how near each is."""
    near: dict[str, tuple[tuple[str, int], ...]] = {}
    for uuid, handle in handles.items():
        others = [
            (other, _closeness(nvml, handle, other_handle)) for other, other_handle in handles.items() if other != uuid
        ]
        near[uuid] = tuple(others)
    return near


def _closeness(nvml: Any, first: Any, second: Any) -> int:
    try:
        if ask(nvml, nvml.nvmlDeviceGetP2PStatus, first, second, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == 0:
            return NVLINK
        level = ask(nvml, nvml.nvmlDeviceGetTopologyCommonAncestor, first, second)
    except nvml.NVMLError:
        return 0
    return _NEARNESS.get(50 if level is None else level, 0)


def text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
