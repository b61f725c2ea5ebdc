"""The devices' telemetry while a cell runs, seen from the host: inside a container one sees neither all of it nor true process ids.

One thread samples every device in use ten times a second, and sleeps while none is. telemetry_gpu.py asks the GPUs, telemetry_cpu.py
the CPU, and the admission makes results of the samples.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from runner.machine import nvml
from runner.machine.gpu_users import GpuUsers
from runner.machine.telemetry_cpu import CpuClock, PackageEnergy, ProcessSampler, Row
from runner.machine.telemetry_gpu import GpuLostError, GpuSampler

HERTZ = 10

# The most rows of a device that are kept: an hour and a half. In a longer cell every second row is dropped, and rows come half as often.
_MOST_ROWS = 50_000


class Observed(Protocol):
    """A running cell, as far as telemetry needs it."""

    def pid(self) -> int | None:
        """The host's number of the cell's first process; None when it is not known (any more)."""
        ...


class Recording:
    """The telemetry of one cell's devices: rows of the table `telemetry`, with `unix` instead of a time
    on the cell's clock.
    """

    def __init__(
        self,
        boards: Sequence[str],
        running: Observed,
        cpus: Sequence[int],
        uuids: Sequence[str] = (),
        unix_at_zero: float = 0.0,
    ) -> None:
        """`unix_at_zero`: as the Monitor has it."""
        self.boards = tuple(boards)
        self.users = GpuUsers(uuids, running.pid)
        self.uuids = tuple(uuids)  # of the GPUs, or of the MIG instances on the boards, in their order
        self.rows: list[Row] = []
        self.xids: list[tuple[str, int]] = []  # (board, number) that the driver reported meanwhile
        self.lost: str | None = None  # the board that answers no more
        self.fault: str | None = None  # what went wrong in us while sampling: rows are missing
        self.step = 1 / HERTZ  # seconds between the rows of a device
        self._last: dict[str, Row] = {}  # of each device
        self._unix_at_zero = unix_at_zero
        self._process = ProcessSampler(running.pid, CpuClock(cpus))

    def now(self) -> float:
        """The time of a row: seconds of the wall clock as it was set when the runner began."""
        return self._unix_at_zero + time.monotonic()

    def sample_cpu(self, now: float, joules: float | None) -> None:
        """`joules` is the counter of the CPU's packages: a result of cells on the CPU, which are alone on it."""
        row = self._process.sample(now)
        if joules is not None and not self.boards:
            row = (row or {"device": "cpu", "unix": now}) | {"energy_joules": joules}
        if row:
            self.add(row)

    def add(self, row: Row) -> None:
        """Keep a row. In a cell of days, whose rows would fill the host's memory, only if it is a step apart or has more columns."""
        last = self._last.get(row["device"])
        if (
            self.step > 1 / HERTZ
            and last
            and len(row) <= len(last)
            and abs(row["unix"] - last["unix"]) < 0.9 * self.step
        ):
            return
        self._last[row["device"]] = row
        self.rows.append(row)
        if len(self.rows) > _MOST_ROWS * (1 + len(self.boards)):
            self.step *= 2
            self.rows = thinned(self.rows, self.step)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def thinned(rows: Iterable[Row], step: float) -> list[Row]:
    """One row of each device in every `step` seconds: the first of those with the most columns."""
    kept: dict[tuple[str, int], Row] = {}
    for row in rows:
        place = row["device"], int(row["unix"] // step)
        if place not in kept or len(row) > len(kept[place]):
            kept[place] = row
    return list(kept.values())


class Monitor:
    """Samples the devices of running cells in a thread of its own. A context manager."""

    def __init__(self) -> None:
        self._recordings: list[Recording] = []
        self._changed = threading.Condition()
        self._closing = False
        # The reason for which the thread samples nothing any more.
        self._ended: str | None = None
        self._packages = PackageEnergy()
        # The wall clock at time.monotonic()'s zero. One for all cells: a clock that is set meanwhile moves no row, and no cell in front of
        # those before it or beside them.
        self._unix_at_zero = time.time() - time.monotonic()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def begin(
        self, boards: Sequence[str], running: Observed, cpus: Sequence[int] = (), uuids: Sequence[str] = ()
    ) -> Recording:
        """Sample these GPUs (UUIDs), this cell and the clock of its CPUs from now on, until end().

        `uuids` are what the cell was given of the GPUs: they themselves, or MIG instances of them, in the same order.
        """
        recording = Recording(boards, running, cpus, uuids, self._unix_at_zero)
        with self._changed:
            recording.fault = self._ended
            self._recordings.append(recording)
            self._changed.notify_all()
        return recording

    def end(self, recording: Recording) -> None:
        with self._changed:
            self._recordings.remove(recording)

    def _run(self) -> None:
        try:
            self._sample_until_closed()
        except Exception as error:  # no cell ends for its telemetry: each one that has none, or a part, says why
            with self._changed:
                self._ended = f"the telemetry ended: {_in_words(error)}"
                for recording in self._recordings:
                    recording.fault = self._ended

    def _sample_until_closed(self) -> None:
        with contextlib.ExitStack() as stack:
            gpus = GpuSampler(None)
            opened = False
            while recordings := self._wait():
                begin = time.monotonic()
                if not opened and any(recording.boards for recording in recordings):
                    opened = True
                    with contextlib.suppress(nvml.NvmlError):
                        gpus = GpuSampler(stack.enter_context(nvml.session()))
                self._sample(gpus, recordings)
                time.sleep(max(0.0, 1 / HERTZ - (time.monotonic() - begin)))

    def _wait(self) -> list[Recording]:
        """The recordings that go on, once there are some; none when the monitor ends."""
        with self._changed:
            while not self._recordings and not self._closing:
                self._changed.wait()
            return [] if self._closing else list(self._recordings)

    def _sample(self, gpus: GpuSampler, recordings: Sequence[Recording]) -> None:
        for recording in recordings:
            try:
                self._sample_cell(gpus, recording)
            except Exception as error:  # a fault in one cell's telemetry must not end the others': it is recorded
                recording.fault = _in_words(error)
        for board, number in gpus.xids():
            for recording in recordings:
                if board in recording.boards:
                    recording.xids.append((board, number))

    def _sample_cell(self, gpus: GpuSampler, recording: Recording) -> None:
        recording.sample_cpu(recording.now(), None if recording.boards else self._packages.joules())
        users = recording.users.sample(time.monotonic(), gpus.processes)
        of_board = {
            board: users[uuid] for board, uuid in zip(recording.boards, recording.uuids, strict=False) if uuid in users
        }
        for board in recording.boards:
            try:
                row = gpus.sample(board)
            except GpuLostError:
                recording.lost = board
                continue
            if row:
                recording.add(row | {"unix": recording.now()} | of_board.get(board, {}))
