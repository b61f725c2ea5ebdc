"""The devices' telemetry while a cell runs, seen from the host: inside a container one sees neither all of it nor true process ids.

One thread samples every device in use ten times a second, and sleeps while none is. telemetry_gpu.py asks the GPUs, telemetry_cpu.py
the CPU, and the admission makes results of the samples.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from runner.machine import nvml, processes
from runner.machine.telemetry_cpu import CpuClock, PackageEnergy, ProcessSampler, Row

# A GPU's telemetry while a cell runs, by NVML.


class GpuLostError(Exception):
    """A GPU has fallen off the bus."""


def lost_board(boards: Iterable[str]) -> str | None:
    """The first of these GPUs (UUIDs) that answers no more; None when all do, or there is no driver to ask."""
    try:
        with nvml.session() as library:
            gpus = GpuSampler(library)
            for board in boards:
                try:
                    gpus.sample(board)
                except GpuLostError:
                    return board
    except nvml.NvmlError:
        pass
    return None


class GpuSampler:
    """Samples GPUs by NVML. A question that a GPU does not support is asked once; a field in error costs that field of that row only.

    `library` None: there is no driver.
    """

    def __init__(self, library: Any | None) -> None:
        self._nvml = library
        self._handles: dict[str, Any] = {}
        self._unanswered: set[tuple[str, str]] = set()
        self._events: Any = None

    def sample(self, board: str) -> Row | None:
        """One row of a GPU by its UUID. Raises GpuLostError."""
        library = self._nvml
        if library is None:
            return None
        try:
            handle = self._handle(board)
            values = {name: self._ask(board, name, handle) for name in _QUESTIONS}
            fields = self._fields(board, handle)
        except (library.NVMLError_GpuIsLost, library.NVMLError_ResetRequired, library.NVMLError_NotFound):
            raise GpuLostError(board) from None
        except nvml.errors(library):
            return None
        reasons = values.pop("throttle_reasons")
        return {"device": board, "unix": time.time(), "throttle_reasons": reasons, **values, **fields}

    def processes(self, uuid: str) -> list[tuple[int, int | None]] | None:
        """(process id, bytes of memory) of who computes on a GPU or a MIG instance, by its UUID; None where the driver does not say."""
        if self._nvml is None:
            return None
        try:
            return processes.entries(self._nvml, self._handle(uuid))
        except nvml.errors(self._nvml):
            return None

    def temperature(self, board: str) -> float | None:
        """Degrees Celsius of a GPU; None where it does not say."""
        if self._nvml is None:
            return None
        with contextlib.suppress(*nvml.errors(self._nvml)):
            return self._ask(board, "temperature_celsius", self._handle(board))
        return None

    def _handle(self, board: str) -> Any:
        if board not in self._handles:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(board.encode())  # type: ignore[union-attr]
            self._handles[board] = handle
            self._listen(handle)
        return self._handles[board]

    def _ask(self, board: str, name: str, handle: Any) -> float | None:
        answer: float | None = self._answer(board, name, _QUESTIONS[name], self._nvml, handle)
        return answer

    def _answer(self, board: str, name: str, question: Callable[..., Any], *arguments: Any) -> Any:
        """One question; None where the GPU has no answer to it, now or at any time. Raises NVMLError where the GPU is gone."""
        if (board, name) in self._unanswered:
            return None
        try:
            return question(*arguments)
        except nvml.errors(self._nvml) as error:
            if nvml.is_gone(error):
                raise
            if nvml.never_answers(error):
                self._unanswered.add((board, name))
            return None

    def _fields(self, board: str, handle: Any) -> Row:
        """The values that NVML gives by field number only. PCIe is a pair of counters: the calls for its rate block for 20 ms each."""
        library = self._nvml
        assert library is not None
        names = {
            "memory_temperature_celsius": library.NVML_FI_DEV_MEMORY_TEMP,
            "pcie_sent_bytes": library.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            "pcie_received_bytes": library.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
        }
        values = self._answer(board, "fields", library.nvmlDeviceGetFieldValues, handle, list(names.values()))
        if values is None:
            return {}
        if all(value.nvmlReturn for value in values):
            self._unanswered.add((board, "fields"))
            return {}
        return {
            name: None
            if value.nvmlReturn
            else (value.value.uiVal if value.valueType == library.NVML_VALUE_TYPE_UNSIGNED_INT else value.value.ullVal)
            for name, value in zip(names, values, strict=True)
        }

    def _listen(self, handle: Any) -> None:
        library = self._nvml
        assert library is not None
        with contextlib.suppress(library.NVMLError):
            if self._events is None:
                self._events = library.nvmlEventSetCreate()
            library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, self._events)

    def xids(self) -> list[tuple[str, int]]:
        """The driver's critical errors since the last call: (board, Xid)."""
        errors: list[tuple[str, int]] = []
        if self._events is None:
            return errors
        library = self._nvml
        assert library is not None
        with contextlib.suppress(library.NVMLError):
            while len(errors) < 100:
                event = library.nvmlEventSetWait_v2(self._events, 0)
                errors.append((nvml.text(library.nvmlDeviceGetUUID(event.device)), int(event.eventData)))
        return errors


# column -> the call of NVML for it, in the column's unit
_QUESTIONS: dict[str, Callable[[Any, Any], float]] = {
    "power_watts": lambda lib, gpu: lib.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "energy_joules": lambda lib, gpu: lib.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    "temperature_celsius": lambda lib, gpu: float(lib.nvmlDeviceGetTemperature(gpu, lib.NVML_TEMPERATURE_GPU)),
    "sm_megahertz": lambda lib, gpu: float(lib.nvmlDeviceGetClockInfo(gpu, lib.NVML_CLOCK_SM)),
    "memory_megahertz": lambda lib, gpu: float(lib.nvmlDeviceGetClockInfo(gpu, lib.NVML_CLOCK_MEM)),
    "throttle_reasons": lambda lib, gpu: lib.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    "utilisation_percent": lambda lib, gpu: float(lib.nvmlDeviceGetUtilizationRates(gpu).gpu),
    "memory_bytes": lambda lib, gpu: int(lib.nvmlDeviceGetMemoryInfo(gpu).used),
}


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
        self.users = processes.GpuUsers(uuids, running.pid)
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
