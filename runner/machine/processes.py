"""The users of a GPU, by the host's process ids, from every driver's form of NVML's answer.

NVML gives an array of entries. Their size differs between drivers: 16 bytes without a suffix; 24 with `_v2`; with `_v3` 24, and 32 in
535.43 to 535.86 (and by reports in some of R525). Driver 535.98 has no `_v3`, and drivers before 510 have none either. The sources are the
histories of nvidia-settings and of nvitop (pull requests 79 and 89, issue 181). nvidia-ml-py knows one size only, so this module calls the
library itself.
"""

from __future__ import annotations

import ctypes
import pwd
import struct
from pathlib import Path
from typing import Any

from runner.machine.devices import Process
from runner.text import visible

# The newest first. Every driver has at least one of them.
_FUNCTIONS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses",
)
_SIZES = (16, 24, 32)

# NVML writes no entry that ends with this byte: the last field is a small number, or 0xFFFFFFFF.
_UNWRITTEN = b"\x5a"

# A process may start between the question how many there are and the question which: then NVML is asked again.
_TRIES = 5
_MOST_PROCESSES = 100_000

# NVML_VALUE_NOT_AVAILABLE
_NOT_AVAILABLE = 2**64 - 1


def running(nvml: Any, handle: Any) -> tuple[Process, ...] | None:
    """The processes on a GPU; None if the driver does not say. Desktops that only draw are not among them.

    Raises NVMLError if the GPU or the driver is gone, and passes the driver's other errors on.
    """
    listed = entries(nvml, handle)
    return None if listed is None else tuple(Process(pid, *who(pid), memory) for pid, memory in listed)


def entries(nvml: Any, handle: Any) -> list[tuple[int, int | None]] | None:
    """(process id, bytes of GPU memory or None) of each process; None where the driver has no such function, or an unknown form.

    Raises as `running` does.
    """
    function = next(filter(None, (_function(nvml, name) for name in _FUNCTIONS)), None)
    if function is None:
        return None
    room = 0
    for _ in range(_TRIES):
        count = ctypes.c_uint(room)
        # Room for the largest entries, so that no driver writes beyond it.
        array = ctypes.create_string_buffer(_UNWRITTEN * (room * _SIZES[-1]), max(1, room * _SIZES[-1]))
        status = function(handle, ctypes.byref(count), array if room else None)
        if status == nvml.NVML_SUCCESS:
            return read_entries(array.raw, min(count.value, room))
        if status != nvml.NVML_ERROR_INSUFFICIENT_SIZE:
            raise nvml.NVMLError(status)
        room = min(max(count.value, room + 1), _MOST_PROCESSES)
    return None


def _function(nvml: Any, name: str) -> Any | None:
    try:
        return nvml._nvmlGetFunctionPointer(name)
    except nvml.NVMLError:
        return None


def read_entries(array: bytes, count: int) -> list[tuple[int, int | None]] | None:
    """The first `count` entries of an array; None where their size is none of the known ones.

    The size follows from how much the driver wrote: no version number tells it.
    """
    if count == 0:
        return []
    written = len(array.rstrip(_UNWRITTEN))
    size = next((size for size in _SIZES if written <= size * count), None)
    if size is None or written <= size * (count - 1):
        # Unknown, or fewer entries than the driver counts: bytes that it did not write are no process.
        return None
    fields = (struct.unpack_from("=IxxxxQ", array, size * at) for at in range(count))
    return [(pid, None if memory == _NOT_AVAILABLE else memory) for pid, memory in fields]


def who(pid: int) -> tuple[str, str]:
    """(program, user) of a process, as far as this process may see it. A program may have any name: only what can be shown is kept."""
    try:
        folder = Path(f"/proc/{pid}")
        owner = folder.stat().st_uid
        program = " ".join(visible((folder / "comm").read_text("utf-8", "replace")).split())
    except OSError:
        return "a process that cannot be seen from here", ""
    try:
        return program, pwd.getpwuid(owner).pw_name
    except KeyError:
        return program, str(owner)
