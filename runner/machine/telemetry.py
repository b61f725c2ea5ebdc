"""What the devices did while a cell ran, seen from the host: processes inside a container see neither all of it nor true process ids.

One thread samples every device in use ten times a second and sleeps while none is: GPUs over NVML, the CPU as telemetry_cpu.py says.
Pure functions make results of the samples.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from runner.machine import nvml
from runner.machine.telemetry_cpu import CpuClock, PackageEnergy, ProcessSampler, Row
from runner.results import throttling

HERTZ = 10

# So many rows of a device are kept, an hour and a half of them; of a longer cell every second one goes, and again, and fewer come.
_MOST_ROWS = 50_000


class Observed(Protocol):
    """A running cell, as far as telemetry needs it."""

    def pid(self) -> int | None:
        """The host's number of the cell's first process; None when it is not known (any more)."""
        ...


class Recording:
    """What one cell's devices did: rows of the table `telemetry`, with `unix` instead of a time on the cell's clock."""

    def __init__(self, boards: Sequence[str], running: Observed, cpus: Sequence[int]) -> None:
        self.boards = tuple(boards)
        self.rows: list[Row] = []
        self.xids: list[tuple[str, int]] = []  # (board, number) that the driver told meanwhile
        self.lost: str | None = None  # the board that answers no more
        self.fault: str | None = None  # what went wrong in us while sampling: rows are missing
        self.step = 1 / HERTZ  # seconds between the rows of a device
        self._last: dict[str, Row] = {}  # of each device
        self._process = ProcessSampler(running.pid, CpuClock(cpus))

    def sample_cpu(self, now: float, joules: float | None) -> None:
        """`joules` is the counter of the CPU's packages: a result of cells on the CPU, which are alone on it."""
        row = self._process.sample(now)
        if joules is not None and not self.boards:
            row = (row or {"device": "cpu", "unix": now}) | {"energy_joules": joules}
        if row:
            self.add(row)

    def add(self, row: Row) -> None:
        """Keep a row; of a cell of days, whose rows would fill the host's memory, those that are a step apart or tell more."""
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


def thinned(rows: Iterable[Row], step: float) -> list[Row]:
    """One row of each device in every `step` seconds: the first of those that tell most."""
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
        self._packages = PackageEnergy()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def begin(self, boards: Sequence[str], running: Observed, cpus: Sequence[int] = ()) -> Recording:
        """Sample these GPUs (UUIDs), this cell and the clock of its CPUs from now on, until end()."""
        recording = Recording(boards, running, cpus)
        with self._changed:
            self._recordings.append(recording)
            self._changed.notify_all()
        return recording

    def end(self, recording: Recording) -> None:
        with self._changed:
            self._recordings.remove(recording)

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            gpus = GpuSampler(None)
            asked = False
            while recordings := self._wait():
                begin = time.monotonic()
                if not asked and any(recording.boards for recording in recordings):
                    asked = True
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
            except Exception as error:  # one cell's telemetry may not end that of the others: it is told, and goes on
                recording.fault = f"{type(error).__name__}: {error}"
        for board, number in gpus.xids():
            for recording in recordings:
                if board in recording.boards:
                    recording.xids.append((board, number))

    def _sample_cell(self, gpus: GpuSampler, recording: Recording) -> None:
        recording.sample_cpu(time.time(), None if recording.boards else self._packages.joules())
        for board in recording.boards:
            try:
                row = gpus.sample(board)
            except GpuLostError:
                recording.lost = board
                continue
            if row:
                recording.add(row)


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
    """Asks NVML. A question that a GPU once had no answer to is not asked again. `library` None: there is no driver."""

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
        except library.NVMLError:
            return None
        reasons = values.pop("throttle_reasons")
        return {"device": board, "unix": time.time(), "throttle_reasons": reasons, **values, **fields}

    def temperature(self, board: str) -> float | None:
        """Degrees Celsius of a GPU; None where it does not say."""
        if self._nvml is None:
            return None
        with contextlib.suppress(self._nvml.NVMLError):
            return self._ask(board, "temperature_celsius", self._handle(board))
        return None

    def _handle(self, board: str) -> Any:
        if board not in self._handles:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(board.encode())  # type: ignore[union-attr]
            self._handles[board] = handle
            self._listen(handle)
        return self._handles[board]

    def _ask(self, board: str, name: str, handle: Any) -> float | None:
        if (board, name) in self._unanswered:
            return None
        answer = nvml.ask(self._nvml, _QUESTIONS[name], self._nvml, handle)
        if answer is None:
            self._unanswered.add((board, name))
        return answer

    def _fields(self, board: str, handle: Any) -> Row:
        """What only the interface of field numbers tells. PCIe is a pair of counters: the calls for its rate block for 20 ms each."""
        library = self._nvml
        assert library is not None
        if (board, "fields") in self._unanswered:
            return {}
        names = {
            "memory_temperature_celsius": library.NVML_FI_DEV_MEMORY_TEMP,
            "pcie_sent_bytes": library.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            "pcie_received_bytes": library.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
        }
        found = nvml.ask(library, library.nvmlDeviceGetFieldValues, handle, list(names.values()))
        if found is None or all(value.nvmlReturn for value in found):
            self._unanswered.add((board, "fields"))
            return {}
        return {
            name: None
            if value.nvmlReturn
            else (value.value.uiVal if value.valueType == library.NVML_VALUE_TYPE_UNSIGNED_INT else value.value.ullVal)
            for name, value in zip(names, found, strict=True)
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
        found: list[tuple[str, int]] = []
        if self._events is None:
            return found
        library = self._nvml
        assert library is not None
        with contextlib.suppress(library.NVMLError):
            while len(found) < 100:
                event = library.nvmlEventSetWait_v2(self._events, 0)
                found.append((nvml.text(library.nvmlDeviceGetUUID(event.device)), int(event.eventData)))
        return found


# column -> how NVML is asked for it, in the column's unit
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


def on_the_cells_clock(rows: Iterable[Row], started_unix: float) -> list[Row]:
    """The rows with `seconds` from the start of the cell's process, as the samples have it."""
    return [{"seconds": row["unix"] - started_unix, **{k: v for k, v in row.items() if k != "unix"}} for row in rows]


def summary(rows: Sequence[Row], samples: Sequence[Mapping[str, Any]], step: float = 1 / HERTZ) -> Row:
    """The columns of `cells` that telemetry gives, over the steady windows: energy, joules per item, heat, throttling.

    `rows` and `samples` are on the same clock; `step` seconds lie between the rows of a device.
    Every value is None where the devices did not say.
    """
    steady = [sample for sample in samples if sample["stage"] == "steady"]
    devices: dict[str, list[Row]] = {}
    for row in rows:
        devices.setdefault(row["device"], []).append(row)
    of_cpu = [row for row in devices.pop("cpu", []) if row.get("energy_joules") is not None]
    gpus = devices or ({"cpu": of_cpu} if of_cpu else {})
    if not steady or not gpus:
        return {}
    begin = min(sample["begin_seconds"] for sample in steady)
    end = max(sample["begin_seconds"] + sample["seconds"] for sample in steady)
    items = sum(sample["items"] for sample in steady)
    spent = [energy(of_gpu, begin, end, step) for of_gpu in gpus.values()]
    joules = sum(each for each, _ in spent if each is not None) if all(each is not None for each, _ in spent) else None
    inside = [row for of_gpu in gpus.values() for row in of_gpu if begin <= row["seconds"] <= end]
    seen = 0
    for row in inside:
        seen |= int(row.get("throttle_reasons") or 0)
    known = any(row.get("throttle_reasons") is not None for row in inside)
    heat = [row["temperature_celsius"] for row in inside if row.get("temperature_celsius") is not None]
    return {
        "energy_joules": joules,
        "energy_source": " and ".join(sorted({source for _, source in spent})) if joules is not None else None,
        "joules_per_item": joules / items if joules is not None and items else None,
        "mean_power_watts": joules / (end - begin) if joules is not None and end > begin else None,
        "max_temperature_celsius": max(heat, default=None),
        "throttled": bool(seen & throttling.THROTTLED) if known else None,
        "throttled_by": throttling.names(seen) if known else None,
    }


def energy(rows: Sequence[Row], begin: float, end: float, step: float = 1 / HERTZ) -> tuple[float | None, str]:
    """(joules that one device took between two times, "counter" or "power"): of its counter, else the integral of its power.

    None where the rows do not reach from one end to the other, within two sampling steps.
    """
    for column, source in (("energy_joules", "counter"), ("power_watts", "power")):
        told = [(row["seconds"], row[column]) for row in rows if row.get(column) is not None]
        if len(told) < 2 or told[0][0] > begin + 2 * step or told[-1][0] < end - 2 * step:
            continue
        if source == "counter":
            return value_at(told, end) - value_at(told, begin), source
        edges = [(begin, value_at(told, begin)), *(p for p in told if begin < p[0] < end), (end, value_at(told, end))]
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(edges)), source
    return None, "none"


def value_at(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value at a time between points (time, value), on the straight line; beyond the ends on the line of the last two."""
    after = next((n for n, (seconds, _) in enumerate(points) if seconds >= at), len(points) - 1)
    (t0, v0), (t1, v1) = points[max(0, after - 1)], points[max(1, after)]
    return v0 if t1 == t0 else v0 + (v1 - v0) * (at - t0) / (t1 - t0)
