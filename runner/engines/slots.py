"""The part of a machine that a cell gets, and how its process ended."""

from __future__ import annotations

from dataclasses import dataclass

from runner.results.on_disk.isolation import Isolation

# The most bytes to keep of a cell's standard error, from its end.
LOG_TAIL_BYTES = 16 * 1024

# The driver keeps what it compiled from PTX up to this size: the most that it takes (CUDA's programming guide). At its own limit of
# 256 MiB or 1 GiB it would throw out one framework's kernels of an image for another's, and compile them again.
JIT_CACHE_BYTES = 4 << 30
# The folder of this cache, below the cell's.
JIT_CACHE_FOLDER = "cuda"


@dataclass(frozen=True)
class Slot:
    """The part of the machine that one running cell has for itself."""

    device_kind: str  # cpu | cuda
    device_uuids: tuple[str, ...]  # the GPUs; empty for the CPU
    cpus: tuple[int, ...]  # numbers of the logical CPUs
    memory_bytes: int | None  # host memory that the cell may use; None: no limit by the runner
    memory_nodes: tuple[int, ...] = ()  # the NUMA nodes that its memory comes from; (): any
    # After so long the cell ends by itself, though nobody is left who watches it. None: never.
    seconds: int | None = None
    # CPU threads where a quota of time allows fewer than there are CPUs. None: one for each CPU.
    quota_threads: int | None = None

    @property
    def threads(self) -> int:
        """CPU threads of the cell; 0: nobody says."""
        return min(len(self.cpus), self.quota_threads or len(self.cpus))


@dataclass(frozen=True)
class Exit:
    """How a cell's process ended."""

    code: int  # as a shell tells it: 128 + signal for a killed process
    out_of_memory: bool  # the kernel or the engine ended it for its memory
    log_tail: str  # the end of its standard error, at most LOG_TAIL_BYTES
    # Whatever of the cell could not be ended, and what becomes of it. None: nothing of it is left.
    left: str | None = None
    # The limits that its engine says that it had; None where no engine limits it.
    isolation: Isolation | None = None
