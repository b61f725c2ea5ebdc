"""Makes the store's rows of what one repeat of a cell prints: chunks of output -> checked events -> rows.

A cell's output is untrusted. Lines, counts and totals are bounded, and every event is checked against the protocol. The first line
that does not fit fails the cell; the rows before it are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bench import rules
from bench.protocol import MAX_LINE_BYTES, ProtocolError, parse
from runner.plan.plan import Cell
from runner.results import parity
from runner.results.parcel import MAX_EVENTS, MAX_TOTAL_BYTES
from runner.results.plausible.arrivals import Arrivals
from runner.results.plausible.phases import Phases
from runner.results.validate import MOST_METRICS

# A profile is a table for a person; the bench prints some forty rows of it.
_MAX_PROFILE_ROWS = 200

_MAX_INT32 = 2**31 - 1
# Event -> its fields whose columns are that narrow.
_INT32 = {"sample": ("index", "steps"), "operation": ("buffers", "index"), "profile": ("steps",)}

# Every event has these fields beside its own.
_ENVELOPE = ("event", "t", "v")

# Event -> the table that it is a row of, and its fields whose columns have another name.
_ROWS: dict[str, tuple[str, dict[str, str]]] = {
    "sample": ("samples", {"begin": "begin_seconds"}),
    "operation": ("operations", {"begin": "begin_seconds"}),
    "left-out": ("left_out", {}),
    "profile": ("profile", {}),
    "metric": ("metrics", {"seconds": "train_seconds"}),
    "parity": ("parity", {}),
}

# Event -> its fields that the cell's own row has, and their columns.
_COLUMNS: dict[str, dict[str, str]] = {
    "data": {"source": "data_source", "sha256": "data_sha256"},
    "plan": {"short": "short"},
    "memory": {"host_peak_bytes": "host_peak_bytes", "device_peak_bytes": "device_peak_bytes"},
    "kernels": {"share": "kernel_share"},
    "end": {"stop": "stop", "noise": "noise", "steps": "steps"},
}


class Recorder:
    """Collects the events of one repeat. `observe` gets each checked event."""

    def __init__(self, observe: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._observe = observe
        self._pending = b""
        self._bytes = 0
        self._count = 0
        # The first breach of the protocol.
        self.problem: str | None = None
        # Half a line at the end: a breach, unless the process died of something else.
        self.torn: str | None = None
        self.row: dict[str, Any] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table, _ in _ROWS.values()}
        self.error: dict[str, Any] | None = None
        self.end: dict[str, Any] | None = None
        self.environment: dict[str, Any] | None = None
        self.data: dict[str, Any] | None = None
        # How many windows it had measured when the adapter that it measured was first checked; None before that.
        self.measured_before_proof: int | None = None
        # The phases that the cell is in, the innermost last.
        self._phases: list[str] = []
        # Those of the samples so far.
        self._indexes: set[int] = set()
        # And the windows of single operations.
        self._operations: set[tuple[Any, ...]] = set()
        # The names of the metrics so far.
        self._metrics: set[str] = set()
        # When the windows came; empty where nobody noted that.
        self.arrivals = Arrivals()
        self.phases = Phases()
        self._at: float | None = None

    def feed(self, chunk: bytes, at: float | None = None) -> None:
        """Take the next bytes of the cell's output, which came at this time (seconds, time.monotonic). After a problem they are ignored."""
        if self.problem:
            return
        self._at = at
        self._bytes += len(chunk)
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            self._take(line)
            if self.problem:
                return
        if len(self._pending) > MAX_LINE_BYTES:
            self._take(self._pending)
        elif self._bytes > MAX_TOTAL_BYTES:
            self.problem = f"the cell printed more than {MAX_TOTAL_BYTES} bytes of events"

    def close(self) -> None:
        """The output has ended. A line without its end is torn."""
        if self._pending and not self.problem:
            self.torn = str(ProtocolError("the last line is torn", self._pending))

    @property
    def ended_well(self) -> bool:
        """True if its last event is an `end` with status ok."""
        return self.problem is None and self.end is not None and self.end["status"] == "ok"

    def _take(self, line: bytes) -> None:
        self._count += 1
        try:
            if self._count > MAX_EVENTS:
                raise ProtocolError(f"more than {MAX_EVENTS} events", line)
            if self.end is not None:
                raise ProtocolError("a line after `end`", line)
            event = parse(line)
            _fits_store(event, line)
            self._fits_earlier(event, line)
        except ProtocolError as error:
            self.problem = str(error)
            return
        self._keep(event)
        if self._observe:
            self._observe(event)

    def _fits_earlier(self, event: dict[str, Any], line: bytes) -> None:
        """Raise ProtocolError for what an earlier event of the cell rules out."""
        if event["event"] == "data" and self.data is not None:
            raise ProtocolError("a second `data`", line)
        if event["event"] == "metric":
            self._metrics.add(event["name"])
            if len(self._metrics) > MOST_METRICS:
                raise ProtocolError(f"more than {MOST_METRICS} metrics", line)
        if event["event"] == "sample":
            if event["index"] in self._indexes:
                raise ProtocolError(f"a second sample with index {event['index']}", line)
            self._indexes.add(event["index"])
        if event["event"] == "operation":
            window = tuple(event[name] for name in ("operation", "direction", "size", "index"))
            if window in self._operations:
                raise ProtocolError(f"a second operation of that size with index {event['index']}", line)
            self._operations.add(window)

    def _keep(self, event: dict[str, Any]) -> None:
        """Put an event into the rows and columns that it belongs to."""
        kind = event["event"]
        self.phases.note(event, self._at)
        if self._at is not None:
            self.arrivals.note(event, self._at)
        if kind in _ROWS:
            table, renamed = _ROWS[kind]
            if table != "profile" or len(self.rows[table]) < _MAX_PROFILE_ROWS:
                fields = {name: value for name, value in event.items() if name not in _ENVELOPE}
                row = {renamed.get(name, name): value for name, value in fields.items()}
                self.rows[table].append(row | (self._placed() if kind == "parity" else {}))
        for field, column in _COLUMNS.get(kind, {}).items():
            self.row[column] = event[field]
        if kind == "environment":
            self.environment = event
            self.row |= _environment_columns(event)
        elif kind == "data":
            self.data = event
        elif kind == "phase" and event["state"] == "begin":
            self._phases.append(event["name"])
        elif kind == "phase":
            self._phases = self._phases[:-1]
            column = rules.seconds_column(event["name"])
            self.row[column] = self.row.get(column, 0.0) + (event["seconds"] or 0.0)
        elif kind == "sample" and event["stage"] == "first":
            self.row["first_step_seconds"] = event["seconds"]
        elif kind == "error":
            self.error = event
        elif kind == "end":
            self.end = event

    def _placed(self) -> dict[str, Any]:
        """The phase of a check. After the first one of the measured adapter no window may come."""
        if self._phases[-1:] == [parity.PROOF] and self.measured_before_proof is None:
            self.measured_before_proof = len(self.rows["samples"])
        return {"phase": "".join(self._phases[-1:])}

    def steps(self) -> int:
        """The optimiser steps of all windows."""
        return sum(sample["steps"] for sample in self.rows["samples"])

    def checks(self, cell: Cell) -> list[dict[str, Any]]:
        """The rows of the parity check. The host decides whether a check passed."""
        checked, steps = checked_of(cell), self.steps()
        return [row | {"passed": parity.passes(row, checked, steps)} for row in self.rows["parity"]]

    def tables(self, cell: Cell, outcome: tuple[str, str | None, str | None], **columns: Any) -> dict[str, Any]:
        """The store's tables for this repeat; `outcome` is (status, error kind, reason)."""
        status, kind, reason = outcome
        checks = self.checks(cell)
        passed = all(check["passed"] for check in checks) if checks else None
        row = asdict(cell) | self.row | columns
        row |= {"status": status, "error_kind": kind, "reason": reason, "parity_passed": passed}
        return {"cells": [row], **self.rows, "parity": checks}


def checked_of(cell: Cell) -> parity.Checked:
    """The fields of a cell that decide which checks it owes."""
    return parity.Checked(cell.workload, cell.precision, cell.preset, cell.devices)


def _environment_columns(event: dict[str, Any]) -> dict[str, Any]:
    versions, device = event["versions"], event["device"]
    return {
        "bench_sha256": event["bench_sha256"],
        "core_sha256": event["core_sha256"],
        "code_sha256": event["code_sha256"],
        "device_uuids": device["uuids"],
        "device_name": device["name"],
        "compute_capability": device["compute_capability"],
        "framework_version": event["framework_version"],
        "python_version": versions.get("python"),
        "cuda_version": versions.get("cuda"),
        "cudnn_version": versions.get("cudnn"),
        "driver_version": versions.get("driver"),
        "environment_json": json.dumps(event, sort_keys=True),
        "started_unix": event["clock"]["unix_at_zero"],
    }


def _fits_store(event: dict[str, Any], line: bytes) -> None:
    """Raise ProtocolError for what the protocol's types let through and the store's columns cannot hold."""
    # Half of a surrogate pair cannot be written as UTF-8. Only an escape can stand for one, and few lines have any.
    if b"\\ud" in line.lower():
        try:
            json.dumps(event, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ProtocolError("a string is not Unicode text", line) from None
    for name in _INT32.get(event["event"], ()):
        if event[name] > _MAX_INT32:
            raise ProtocolError(f"{event['event']}.{name} is above 2**31", line)
    # JSON's whole numbers have no limit; the columns are doubles.
    for name, value in event.items():
        if isinstance(value, int) and abs(value) >= 2**63:
            event[name] = float(value)
