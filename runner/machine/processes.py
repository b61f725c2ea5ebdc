"""The users of a GPU, by the host's process ids, from every driver's form of NVML's answer.

NVML gives an array of entries. Their size differs between drivers: 16 bytes without a suffix; 24 with `_v2`; with `_v3` 24, and 32 in
535.43 to 535.86 (and by reports in some of R525). Driver 535.98 has no `_v3`, and drivers before 510 have none either. The sources are the
histories of nvidia-settings and of nvitop (pull requests 79 and 89, issue 181). nvidia-ml-py knows one size only, so this module calls the
library itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import pwd
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from runner.machine.devices import Process
from runner.machine.telemetry_cpu import Row
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


# The users of the GPUs of a running cell, by NVML: the cell's own process proves where it computes, and others disturb it.

PROVED = "proved by NVML"

# How often NVML is asked for processes. A process counts as a foreign one when it is seen twice: the cell before may take a moment to end.
_SECONDS = 0.5
_SEEN = 2

_MOST_KEPT = 16
# Of a sentence about a process.
MOST_TEXT = 200

# The most of an idle GPU's mean power, relative to its lowest: power scatters, and falls slowly after the cell before.
# The number is chosen, not measured.
_IDLE_POWER = 1.2
# The rows that show an idle GPU: the driver's utilisation is itself a mean over up to a second.
_IDLE_ROWS = 15


class GpuUsers:
    """The processes on a cell's GPUs while it runs. `uuids` are the GPUs or MIG instances that it was given."""

    def __init__(self, uuids: Sequence[str], pid: Callable[[], int | None]) -> None:
        self._uuids = tuple(uuids)
        self._pid = pid
        self._next = 0.0
        self._proved: set[str] = set()
        # The cell's own processes, as far as they were seen: so that each is looked up once.
        self._own: set[int] = set()
        self._seen: dict[int, int] = {}
        self._foreign: dict[int, Process] = {}
        # UUID -> why nothing proves that the cell computes there, as of the last sample that said anything: the one after the cell's end
        # finds no process.
        self._reasons: dict[str, str] = {}

    def sample(self, now: float, ask: Callable[[str], Iterable[tuple[int, int | None]] | None]) -> dict[str, Row]:
        """UUID -> the columns about foreign processes. Empty between two samples, and where the driver or the engine does not say.

        `ask` gives (process id, bytes of memory) of the processes on a GPU by its UUID; None: the driver does not say.
        """
        if not self._uuids or now < self._next:
            return {}
        self._next = now + _SECONDS
        cell = self._pid()
        columns = {}
        for uuid in self._uuids:
            entries = ask(uuid)
            if entries is None:
                self._reasons.setdefault(uuid, "the driver does not say who computes on it")
            elif cell is None:
                self._reasons.setdefault(uuid, "the engine does not tell the cell's process")
            else:
                columns[uuid] = self._sort(uuid, cell, entries)
        return columns

    def _sort(self, uuid: str, cell: int, entries: Iterable[tuple[int, int | None]]) -> Row:
        """Tell the cell's own processes from foreign ones and from those that this process cannot see."""
        count, total = 0, 0
        self._reasons[uuid] = "NVML showed no process of the cell on it"
        for pid, memory in entries:
            line = [] if pid in self._own else ancestors(pid)
            if pid in self._own or cell in line:
                self._own.add(pid)
                self._proved.add(uuid)
            elif not line:
                self._reasons[uuid] = f"NVML showed process {pid}, which cannot be seen from here"
            else:
                self._seen[pid] = self._seen.get(pid, 0) + 1
                if self._seen[pid] >= _SEEN:
                    self._keep(pid, memory)
                    count, total = count + 1, total + (memory or 0)
        return {"foreign_process_count": count, "foreign_memory_bytes": total}

    def _keep(self, pid: int, memory: int | None) -> None:
        if len(self._foreign) < _MOST_KEPT or pid in self._foreign:
            self._foreign[pid] = Process(pid, *who(pid), memory)

    def state(self) -> dict[str, Any]:
        """The users seen, as JSON: where a process of the cell was, why none was elsewhere, and who else was there."""
        foreign = [asdict(process) for process in self._foreign.values()]
        return {"proved": sorted(self._proved), "reasons": self._reasons, "foreign": foreign}

    @property
    def foreign(self) -> list[str]:
        """The processes of others that computed on these GPUs meanwhile."""
        return [str(process)[:MOST_TEXT] for process in self._foreign.values()]


def gpu_proof(uuids: Sequence[str], proved: Sequence[str], reasons: Mapping[str, str]) -> str | None:
    """PROVED, or "not proved" with the reason; None for a cell without GPUs. `reasons`: as in GpuUsers.state."""
    if not uuids:
        return None
    for uuid in uuids:
        if uuid not in proved:
            return f"not proved: {uuid}: {reasons.get(uuid, 'NVML was not asked while the cell ran')}"
    return PROVED


def ancestors(pid: int) -> list[int]:
    """A process and those above it; empty where it cannot be seen from here."""
    line: list[int] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 0 and pid not in line:
            parent = int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rsplit(")", 1)[1].split()[1])
            line.append(pid)
            pid = parent
    return line


def idle(rows: Sequence[Row], board: str, measured: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a GPU was idle while a cell was measured, in a clause; None where it was not, or its telemetry does not show it.

    `rows` is the cell's telemetry, and `measured` its windows, on the same clock.
    """
    own = [row for row in rows if row["device"] == board]
    if not own or not measured:
        return None
    begin = min(window["begin_seconds"] for window in measured)
    end = max(window["begin_seconds"] + window["seconds"] for window in measured)
    inside = [row for row in own if begin <= row["seconds"] <= end]
    busy = [row.get("utilisation_percent") for row in inside]
    power = [watts for row in inside if (watts := row.get("power_watts")) is not None]
    if len(inside) < _IDLE_ROWS or None in busy or len(power) < len(inside) or any(busy):
        return None
    lowest = min(row["power_watts"] for row in own if row.get("power_watts") is not None)
    if fmean(power) > _IDLE_POWER * lowest:
        return None
    return f"its utilisation was 0, its power {fmean(power):.0f} W, and {lowest:.0f} W at the lowest"
