"""The users of the GPUs of a running cell, by NVML: the cell's own process proves where it computes, and others disturb it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from runner.machine.devices import Process
from runner.machine.processes import who
from runner.machine.telemetry_cpu import Row

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


def proof(uuids: Sequence[str], proved: Sequence[str], reasons: Mapping[str, str]) -> str | None:
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
