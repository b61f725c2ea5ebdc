"""NVIDIA's management library on the host: which GPUs there are, how they are connected, what runs on them.

An optional question has the answer None where the driver answers with an error. An error that says that the driver or the GPU is gone is
raised.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from runner.errors import CannotBeginError
from runner.machine import processes
from runner.machine.devices import Gpu, Process, Refused

# NVML's errors that say that the driver or the GPU is gone. Any other costs the one answer only.
_GONE = (
    "NVMLError_Uninitialized",
    "NVMLError_DriverNotLoaded",
    "NVMLError_LibraryNotFound",
    "NVMLError_LibRmVersionMismatch",
    "NVMLError_GpuIsLost",
    "NVMLError_ResetRequired",
)

# After these a GPU has no answer to the question at any time.
_NEVER = ("NVMLError_NotSupported", "NVMLError_NoPermission", "NVMLError_FunctionNotFound", "NVMLError_NotFound")

# How near two GPUs are: NVLink before everything, then what PCI Express has between them (NVML's topology levels).
NVLINK = 6
_NEARNESS = {0: 5, 10: 4, 20: 3, 30: 2, 40: 1, 50: 0}


# NVML's compute modes: who may compute on a GPU.
EXCLUSIVE, PROHIBITED = "exclusive process", "prohibited"
# NVML's words where the kernel's driver is of another version than the library: after an update, until the machine is restarted.
MISMATCH = "version mismatch"
# The words of a driver whose library is here and does not start.
SILENT = "the NVIDIA driver does not answer"
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: PROHIBITED, 3: EXCLUSIVE}

Answer = TypeVar("Answer")


class NvmlError(CannotBeginError):
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
        remedy = "restart the machine" if MISMATCH in str(error) else "`runner doctor` says more"
        raise NvmlError(f"{SILENT} ({error}); {remedy}") from None
    try:
        yield nvml
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def errors(nvml: Any) -> tuple[type[Exception], ...]:
    """The exceptions of nvidia-ml-py for the driver's answers. A name that is not UTF-8 is such an answer too."""
    return nvml.NVMLError, nvml.NVMLLibraryMismatchError, UnicodeDecodeError


def ask(nvml: Any, question: Callable[..., Answer], *arguments: Any) -> Answer | None:
    """One optional question; None where the driver answers with an error. Raises NVMLError where the driver or the GPU is gone."""
    try:
        return question(*arguments)
    except errors(nvml) as error:
        if is_gone(error):
            raise
        return None


def is_gone(error: Exception) -> bool:
    """True if an error means that the driver or the GPU is gone."""
    return type(error).__name__ in _GONE


def never_answers(error: Exception) -> bool:
    """True if a GPU never answers the question. A field in error has none now, and may have one later."""
    return type(error).__name__ in _NEVER


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
        except errors(nvml) as error:
            raise NvmlError(f"the NVIDIA driver failed while it listed its GPUs ({error})") from None
        gpus: list[Gpu] = []
        refused: list[Refused] = []
        handles: dict[str, Any] = {}
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                board = _with_settings(nvml, handle, _board(nvml, handle, index, driver, cuda, allowed))
                parts = list(_instances(nvml, handle, board)) if board.mig else [board]
            except errors(nvml) as error:
                refused.append(_refusal(nvml, index, error))
                continue
            if board.compute_mode == PROHIBITED:
                why = f"its compute mode is {PROHIBITED}; `nvidia-smi -i {index} -c DEFAULT` allows programs on it"
                refused.append(Refused(board.name, board.model, f"{board}: {why}"))
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


def _refusal(nvml: Any, index: int, error: Exception) -> Refused:
    """Why a GPU that answers with an error is left out."""
    if isinstance(error, nvml.NVMLError_NoPermission):
        why = f"GPU {index} may not be used by this user ({error}): a job's or a container's device list leaves it out"
        return Refused(str(index), "", why, hidden=True)
    gone = isinstance(error, (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired))
    what_to_do = "it needs a reset" if gone else f"`nvidia-smi -q -i {index}` says more"
    return Refused(str(index), "", f"GPU {index} answers with an error ({error}); {what_to_do}")


def _board(nvml: Any, handle: Any, index: int, driver: str, cuda: str, allowed: Sequence[int]) -> Gpu:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
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
        memory_bytes=None if memory is None else int(memory.total),
        driver=driver,
        cpus=_near_cpus(nvml, handle, allowed),
        board=uuid,
        cuda_driver=cuda,
        free_bytes=None if memory is None else int(memory.free),
        numa_node=_numa_node(nvml, handle),
        pci=text(pci.busId) if pci else "",
        pcie_generation=ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        pcie_width_now=ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        ecc=None if ecc is None else bool(ecc[0]),
        persistence=None if persistence is None else bool(persistence),
        power_limit_watts=None if limit is None else limit / 1000,
        mig=bool(mig and mig[0]),
        processes=ask(nvml, processes.running, nvml, handle),
    )


def _with_settings(nvml: Any, handle: Any, gpu: Gpu) -> Gpu:
    """The GPU with its set clocks, power limit and compute mode."""
    default_limit = ask(nvml, nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
    vbios = ask(nvml, nvml.nvmlDeviceGetVbiosVersion, handle)
    mode = ask(nvml, nvml.nvmlDeviceGetComputeMode, handle)
    sm, memory, graphics = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM, nvml.NVML_CLOCK_GRAPHICS
    return replace(
        gpu,
        default_power_limit_watts=None if default_limit is None else default_limit / 1000,
        max_sm_megahertz=ask(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, sm),
        max_memory_megahertz=ask(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, memory),
        application_sm_megahertz=ask(nvml, nvml.nvmlDeviceGetApplicationsClock, handle, graphics),
        application_memory_megahertz=ask(nvml, nvml.nvmlDeviceGetApplicationsClock, handle, memory),
        vbios=None if vbios is None else text(vbios),
        compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, f"mode {mode}"),
    )


def _instances(nvml: Any, handle: Any, board: Gpu) -> Iterator[Gpu]:
    """The MIG instances of a GPU, each as a GPU of its own: that is what CUDA makes of them."""
    for number in range(ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if instance is None:
            continue
        memory = ask(nvml, nvml.nvmlDeviceGetMemoryInfo, instance)
        yield replace(
            board,
            uuid=text(nvml.nvmlDeviceGetUUID(instance)),
            model=text(nvml.nvmlDeviceGetName(instance)),
            instance=number,
            memory_bytes=None if memory is None else int(memory.total),
            free_bytes=None if memory is None else int(memory.free),
            processes=_of_instance(ask(nvml, processes.running, nvml, instance), board),
        )


def _of_instance(own: tuple[Process, ...] | None, board: Gpu) -> tuple[Process, ...] | None:
    """The processes on an instance. Some drivers list those of the whole GPU only."""
    return own or board.processes or own


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
    except errors(nvml):
        return 0
    return _NEARNESS.get(50 if level is None else level, 0)


def text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
