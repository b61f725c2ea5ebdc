"""A GPU's telemetry while a cell runs, by NVML."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from runner.machine import nvml, processes
from runner.machine.telemetry_cpu import Row


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
