"""What one repeat of a cell said: chunks of its output become checked events, and those the store's rows.

Everything here comes out of a cell and is untrusted: lines, counts and totals are bounded, every event is checked against the
protocol, and the first line that does not fit fails the cell while all that came before it is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.protocol import MAX_LINE_BYTES, ProtocolError, parse
from runner.engines.base import Exit
from runner.machine.devices import same_gpus
from runner.plan.plan import Cell

# A profile is a table for a person; the bench tells some forty rows of it.
_MAX_PROFILE_ROWS = 200

# A cell of preset full tells some 20 000 events; a cell that says more than this is broken.
MAX_EVENTS = 200_000
MAX_TOTAL_BYTES = 64 * 1024 * 1024

_MAX_INT32 = 2**31 - 1
# event -> its fields whose columns are that narrow
_INT32 = {"sample": ("index", "steps"), "operation": ("buffers", "index"), "profile": ("steps",)}

_PHASE_COLUMNS = {
    "import": "import_seconds",
    "data": "data_seconds",
    "build": "build_seconds",
    "compile": "compile_seconds",
    "warm-up": "warmup_seconds",
    "parity": "parity_seconds",
    "train": "train_seconds",
    "evaluate": "evaluate_seconds",
    "profile": "profile_seconds",
}


class Recorder:
    """Collects the events of one repeat. `observe` is told each checked event; `path` keeps each good line as it came."""

    def __init__(self, path: Path, observe: Callable[[dict[str, Any]], None] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._observe = observe
        self._pending = b""
        self._bytes = 0
        self._count = 0
        self.problem: str | None = None  # the first breach of the protocol
        self.torn: str | None = None  # half a line at the end: a breach, unless the process died of something else
        self.row: dict[str, Any] = {}
        self.samples: list[dict[str, Any]] = []
        self.operations: list[dict[str, Any]] = []
        self.left_out: list[dict[str, Any]] = []
        self.profile: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        self.parity: list[dict[str, Any]] = []
        self.error: dict[str, Any] | None = None
        self.end: dict[str, Any] | None = None
        self.environment: dict[str, Any] | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the cell's output. After a problem the rest is ignored."""
        if self.problem:
            return
        self._bytes += len(chunk)
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            self._take(line)
            if self.problem:
                return
        self._file.flush()  # once for what came together: eight cells print a hundred lines a second
        if len(self._pending) > MAX_LINE_BYTES:
            self._take(self._pending)
        elif self._bytes > MAX_TOTAL_BYTES:
            self.problem = f"the cell printed more than {MAX_TOTAL_BYTES} bytes of events"

    def close(self) -> None:
        """The output has ended: a line without its end is torn."""
        if self._pending and not self.problem:
            self.torn = str(ProtocolError("the last line is torn", self._pending))
        self._file.close()

    def _take(self, line: bytes) -> None:
        self._count += 1
        try:
            if self._count > MAX_EVENTS:
                raise ProtocolError(f"more than {MAX_EVENTS} events", line)
            if self.end is not None:
                raise ProtocolError("a line after `end`", line)
            event = parse(line)
            _fits_store(event, line)
        except ProtocolError as error:
            self.problem = str(error)
            return
        self._file.write(line + b"\n")
        getattr(self, "_on_" + event["event"].replace("-", "_"))(event)
        if self._observe:
            self._observe(event)

    def _on_environment(self, event: dict[str, Any]) -> None:
        self.environment = event
        versions = event["versions"]
        self.row.update(
            bench_sha256=event["bench_sha256"],
            core_sha256=event["core_sha256"],
            code_sha256=event["code_sha256"],
            device_uuids=event["device"]["uuids"],
            device_name=event["device"]["name"],
            compute_capability=event["device"]["compute_capability"],
            framework_version=event["framework_version"],
            python_version=versions.get("python"),
            cuda_version=versions.get("cuda"),
            cudnn_version=versions.get("cudnn"),
            driver_version=versions.get("driver"),
            environment_json=json.dumps(event, sort_keys=True),
            started_unix=event["clock"]["unix_at_zero"],
        )

    def _on_data(self, event: dict[str, Any]) -> None:
        self.row.update(data_source=event["source"], data_sha256=event["sha256"])

    def _on_phase(self, event: dict[str, Any]) -> None:
        if event["state"] == "end":
            column = _PHASE_COLUMNS[event["name"]]
            self.row[column] = self.row.get(column, 0.0) + (event["seconds"] or 0.0)

    def _on_plan(self, event: dict[str, Any]) -> None:
        self.row["short"] = event["short"]

    def _on_sample(self, event: dict[str, Any]) -> None:
        if event["stage"] == "first":
            self.row["first_step_seconds"] = event["seconds"]
        self.samples.append(
            {
                "index": event["index"],
                "stage": event["stage"],
                "begin_seconds": event["begin"],
                "seconds": event["seconds"],
                "steps": event["steps"],
                "items": event["items"],
            }
        )

    def _on_operation(self, event: dict[str, Any]) -> None:
        columns = ("operation", "direction", "size", "mop", "bytes", "buffers", "index", "seconds", "runs")
        self.operations.append({column: event[column] for column in columns} | {"begin_seconds": event["begin"]})

    def _on_left_out(self, event: dict[str, Any]) -> None:
        self.left_out.append({"what": event["what"], "reason": event["reason"]})

    def _on_profile(self, event: dict[str, Any]) -> None:
        columns = ("name", "on", "calls", "seconds", "steps", "step_seconds")
        if len(self.profile) < _MAX_PROFILE_ROWS:
            self.profile.append({column: event[column] for column in columns})

    def _on_metric(self, event: dict[str, Any]) -> None:
        row = {column: event[column] for column in ("name", "split", "step", "value")}
        self.metrics.append(row | {"train_seconds": event["seconds"]})

    def _on_parity(self, event: dict[str, Any]) -> None:
        columns = ("quantity", "tensor", "error", "bound", "passed", "variant")
        self.parity.append({column: event[column] for column in columns})

    def _on_memory(self, event: dict[str, Any]) -> None:
        self.row.update(host_peak_bytes=event["host_peak_bytes"], device_peak_bytes=event["device_peak_bytes"])

    def _on_error(self, event: dict[str, Any]) -> None:
        self.error = event

    def _on_end(self, event: dict[str, Any]) -> None:
        self.end = event
        self.row.update(stop=event["stop"], noise=event["noise"], steps=event["steps"])

    def tables(self, cell: Cell, outcome: tuple[str, str | None, str | None], **columns: Any) -> dict[str, Any]:
        """The store's tables for this repeat; `outcome` is (status, error kind, reason)."""
        status, kind, reason = outcome
        passed = all(row["passed"] for row in self.parity) if self.parity else None
        row = asdict(cell) | self.row | columns
        row |= {"status": status, "error_kind": kind, "reason": reason, "parity_passed": passed}
        return {
            "cells": [row],
            "samples": self.samples,
            "operations": self.operations,
            "left_out": self.left_out,
            "profile": self.profile,
            "metrics": self.metrics,
            "parity": self.parity,
        }


def _fits_store(event: dict[str, Any], line: bytes) -> None:
    """Raise ProtocolError for what the protocol's types let through and the store's columns cannot hold."""
    try:
        json.dumps(event, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair: no text that can be written
        raise ProtocolError("a string is not Unicode text", line) from None
    for name in _INT32.get(event["event"], ()):
        if event[name] > _MAX_INT32:
            raise ProtocolError(f"{event['event']}.{name} is above 2**31", line)
    for name, value in event.items():  # JSON's whole numbers have no size; the columns are doubles
        if isinstance(value, int) and abs(value) >= 2**63:
            event[name] = float(value)


def judge(
    recorder: Recorder, cell: Cell, ended: Exit, ended_by: tuple[str, str] | None, uuids: tuple[str, ...]
) -> tuple[str, str | None, str | None]:
    """(status, error kind, reason) of a repeat that has ended.

    `ended_by` is (kind, reason) where the watchdog ended it; `uuids` are the GPUs it was given.
    """
    failure = (
        ended_by
        or _memory(ended)
        or _said(recorder, ended)
        or wrong_device(recorder, cell, uuids)
        or _parity(recorder)
        or _nothing_measured(recorder)
    )
    return ("failed", *failure) if failure else ("ok", None, None)


def _memory(ended: Exit) -> tuple[str, str] | None:
    if ended.out_of_memory:
        return "out-of-memory", "the machine's memory limit ended it; give the cell more, or run fewer at a time"
    return None


def _said(recorder: Recorder, ended: Exit) -> tuple[str, str] | None:
    if recorder.problem:
        return "protocol", f"its output broke the protocol: {recorder.problem}"
    if recorder.error:
        return recorder.error["kind"], recorder.error["message"]
    if recorder.torn and ended.code == 0:
        return "protocol", f"its output broke the protocol: {recorder.torn}"
    if recorder.end is None or ended.code != 0:
        return "crash", f"its process ended with {_code(ended.code)} {'after' if recorder.end else 'before'} its `end`"
    if recorder.end["status"] != "ok":
        return "bug", "it told `end` with status failed and no error"
    return None


def _code(code: int) -> str:
    import signal

    if code > 128:
        try:
            return f"exit code {code} ({signal.Signals(code - 128).name})"
        except ValueError:
            pass
    return f"exit code {code}"


def wrong_device(recorder: Recorder, cell: Cell, uuids: tuple[str, ...]) -> tuple[str, str] | None:
    """(error kind, reason) unless it computes on what it was given: a result from the wrong GPU is worse than none."""
    if recorder.environment is None:
        return "protocol", "it never told its environment"
    if recorder.environment["framework"] != cell.framework:
        return "protocol", f"it ran {recorder.environment['framework']} where {cell.framework} was asked for"
    device = recorder.environment["device"]
    if device["kind"] != cell.device_kind:
        return "wrong-device", f"it ran on {device['kind']} ({device['name']}) where {cell.device_kind} was asked for"
    if device["kind"] == "cpu" and device["count"] != cell.devices:
        asked = f"{cell.devices} processes or virtual devices were" if cell.devices > 1 else "one was"
        return "wrong-device", f"it ran on {device['count']} CPU devices where {asked} asked for"
    if uuids and not same_gpus(device["uuids"], uuids):
        where = ", ".join(device["uuids"]) or "a GPU that it does not name"
        return "wrong-device", f"it ran on {where} and was given {', '.join(uuids)}"
    return None


def _parity(recorder: Recorder) -> tuple[str, str] | None:
    if not recorder.parity:
        return "parity", "it ended without the parity check, so nothing shows that it computes the same network"
    failed = [row for row in recorder.parity if not row["passed"]]
    if not failed:
        return None
    worst = max(failed, key=lambda r: (r["error"] is None, (r["error"] or 0.0) / (r["bound"] or 1e-300)))
    error = "is not finite" if worst["error"] is None else f"is off by {worst['error']:.2g}"
    return "parity", (
        f"it computes something else: {worst['quantity']} {worst['tensor']} {error} where {worst['bound']:.2g} is "
        f"allowed ({len(failed)} of {len(recorder.parity)} quantities fail)"
    )


def _nothing_measured(recorder: Recorder) -> tuple[str, str] | None:
    if recorder.operations or any(sample["stage"] == "steady" for sample in recorder.samples):
        return None
    return "protocol", "it ended without one steady window"
