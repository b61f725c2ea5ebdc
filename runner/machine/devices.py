"""Processors, GPUs and who uses them: the types that describe a machine. `detect` finds them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cpu:
    """The processors of this machine that cells may use."""

    model: str
    cpus: tuple[int, ...]  # numbers of the logical CPUs that this process may run on
    memory_bytes: int
    memory_nodes: tuple[int, ...] = ()  # NUMA nodes that have memory
    cores: tuple[
        tuple[int, ...], ...
    ] = ()  # those of `cpus` that are one physical core; a CPU that is in none is a core
    quota: float | None = None  # seconds of CPU time for each second, on whichever of `cpus`; None: all of them
    machine_cpus: int | None = None  # those of the whole machine; None: not known
    # How `cpus` are set to save power; None: the machine does not say.
    governor: str | None = None
    energy_preference: str | None = None
    turbo: str | None = None

    @property
    def count(self) -> int:
        """How many threads can run at a time."""
        return len(self.cpus) if self.quota is None else max(1, min(len(self.cpus), int(self.quota)))

    @property
    def facts(self) -> dict[str, str | float | None]:
        """The part of run.json about the processors of a machine, or of a node."""
        return {
            "cpu_model": self.model,
            "cpu_count": self.count,
            "cpu_quota": self.quota,
            "machine_cpus": self.machine_cpus,
            "memory_bytes": self.memory_bytes,
            "cpu_governor": self.governor,
            "cpu_energy_preference": self.energy_preference,
            "cpu_turbo": self.turbo,
        }


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
    memory_bytes: int | None  # GB10 shares the host's memory: its driver does not say
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
    default_power_limit_watts: float | None = None
    max_sm_megahertz: int | None = None
    max_memory_megahertz: int | None = None
    # The application clocks that are set. Most GPUs of today have none.
    application_sm_megahertz: int | None = None
    application_memory_megahertz: int | None = None
    locked_sm_megahertz: int | None = None  # by --lock-clocks of this run; NVML does not tell what others have locked
    vbios: str | None = None
    compute_mode: str | None = None  # default | exclusive process | prohibited
    mig: bool = False
    processes: tuple[Process, ...] | None = ()  # None: the driver does not say who computes on it
    near: tuple[tuple[str, int], ...] = ()  # the other boards, each with how near it is: a larger number is nearer

    def __post_init__(self) -> None:
        if not self.board:
            object.__setattr__(self, "board", self.uuid)

    @property
    def memory(self) -> str:
        """Its memory in words."""
        return "memory not reported" if self.memory_bytes is None else f"{self.memory_bytes / 2**30:.0f} GiB"

    @property
    def name(self) -> str:
        """The name for --gpus: its index, and for an instance its number after a colon."""
        return str(self.index) if self.instance is None else f"{self.index}:{self.instance}"

    def __str__(self) -> str:
        return f"GPU {self.name} ({self.model})"


@dataclass(frozen=True)
class Refused:
    """A GPU that is there and is not used."""

    name: str
    model: str
    reason: str
    hidden: bool = False  # this user may not use it: CUDA does not count it among its GPUs


@dataclass(frozen=True)
class Machine:
    """Everything that cells can run on here."""

    cpu: Cpu
    gpus: tuple[Gpu, ...]
    why_no_gpu: str | None  # a clause, when there is none to use
    refused: tuple[Refused, ...] = ()
    # Sentences about the GPUs that are used.
    notes: tuple[str, ...] = ()
    # True if there are GPUs and each is in a state that a person has to fix: measuring the CPU would not be what was wanted.
    broken: bool = False

    @property
    def kernel(self) -> str:
        return platform.release()


def is_busy(gpu: Gpu) -> bool:
    """True if somebody is known to compute on it. If the driver does not say, `unknown_users` does."""
    return bool(gpu.processes)


_IN_USE = " is in use by "


def busy(gpu: Gpu) -> Refused:
    """Why a GPU that somebody computes on is left out."""
    users = gpu.processes or ()
    who = ", ".join(map(str, users[:3])) + (" and more" if len(users) > 3 else "")
    return Refused(gpu.name, gpu.model, f"{gpu}{_IN_USE}{who}; wait for it, or share it with --share")


def is_left_to_others(refused: Refused) -> bool:
    """True if somebody else's work is all that is against a GPU."""
    return _IN_USE in refused.reason


def unknown_users(gpus: Sequence[Gpu]) -> list[str]:
    """A sentence about the GPUs whose driver does not say who computes on them; none where all do."""
    names = [gpu.name for gpu in gpus if gpu.processes is None]
    if not names:
        return []
    return [
        f"the driver does not say who computes on GPU {', '.join(names)}: somebody may, and the times would not be its own"
    ]


def same_gpus(first: Sequence[str], second: Sequence[str]) -> bool:
    """True if two lists of UUIDs name the same GPUs. Some frameworks write them without the prefix, or in capitals."""
    return sorted(map(bare_uuid, first)) == sorted(map(bare_uuid, second))


def bare_uuid(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
