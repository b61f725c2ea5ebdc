"""Makes the store's rows of what one repeat of a cell prints: chunks of output -> checked events -> rows.

A cell's output is untrusted. Lines, counts and totals are bounded, and every event is checked against the protocol. The first line
that does not fit fails the cell; the rows before it are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import rules
from bench.protocol import MAX_LINE_BYTES, ProtocolError, parse
from runner.engines.base import Exit
from runner.machine.devices import same_gpus
from runner.plan.plan import Cell
from runner.results import parity
from runner.results.plausible.arrivals import Arrivals
from runner.results.plausible.phases import Phases
from runner.results.validate import MOST_METRICS

# A profile is a table for a person; the bench prints some forty rows of it.
_MAX_PROFILE_ROWS = 200

# A whole run has 40 000 windows at most, of four events each (bench.timing.MOST_WINDOWS). A cell that prints more than this is broken.
MAX_EVENTS = 200_000
MAX_TOTAL_BYTES = 64 * 1024 * 1024

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
    """Collects the events of one repeat. `observe` gets each checked event; `path` keeps each good line as it came."""

    def __init__(self, path: Path, observe: Callable[[dict[str, Any]], None] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
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
        # When the windows came; empty of a cell that another machine measured.
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
        # Once for the whole chunk: eight cells print a hundred lines a second.
        self._file.flush()
        if len(self._pending) > MAX_LINE_BYTES:
            self._take(self._pending)
        elif self._bytes > MAX_TOTAL_BYTES:
            self.problem = f"the cell printed more than {MAX_TOTAL_BYTES} bytes of events"

    def close(self) -> None:
        """The output has ended: a line without its end is torn."""
        if self._pending and not self.problem:
            self.torn = str(ProtocolError("the last line is torn", self._pending))
        self._file.close()

    @property
    def ended_well(self) -> bool:
        """Whether its last event is an `end` that says so."""
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
        self._file.write(line + b"\n")
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
        """The rows of the parity check. Whether one passed is this host's word."""
        checked, steps = _checked(cell), self.steps()
        return [row | {"passed": parity.passes(row, checked, steps)} for row in self.rows["parity"]]

    def tables(self, cell: Cell, outcome: tuple[str, str | None, str | None], **columns: Any) -> dict[str, Any]:
        """The store's tables for this repeat; `outcome` is (status, error kind, reason)."""
        status, kind, reason = outcome
        checks = self.checks(cell)
        passed = all(check["passed"] for check in checks) if checks else None
        row = asdict(cell) | self.row | columns
        row |= {"status": status, "error_kind": kind, "reason": reason, "parity_passed": passed}
        return {"cells": [row], **self.rows, "parity": checks}


def _checked(cell: Cell) -> parity.Checked:
    """What of a cell decides which checks it owes."""
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
    try:
        json.dumps(event, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        # Half of a surrogate pair cannot be written as UTF-8.
        raise ProtocolError("a string is not Unicode text", line) from None
    for name in _INT32.get(event["event"], ()):
        if event[name] > _MAX_INT32:
            raise ProtocolError(f"{event['event']}.{name} is above 2**31", line)
    # JSON's whole numbers have no limit; the columns are doubles.
    for name, value in event.items():
        if isinstance(value, int) and abs(value) >= 2**63:
            event[name] = float(value)


def judge(
    recorder: Recorder,
    cell: Cell,
    ended: Exit,
    ended_by: tuple[str, str] | None,
    uuids: tuple[str, ...],
    data_given: bool = False,
) -> tuple[str, str | None, str | None]:
    """(status, error kind, reason) of a repeat that has ended.

    `ended_by` is (kind, reason) where the watchdog ended it; `uuids` are the GPUs it was given; `data_given`: it had the real data.
    """
    failure = (
        ended_by
        or _memory(ended)
        or _reported(recorder, ended)
        or wrong_device(recorder, cell, uuids)
        or _kernels_of_cpu(recorder, cell)
        or _other_data(recorder, data_given)
        or _parity(recorder, cell)
        or _nothing_measured(recorder)
        or _unproved(recorder, cell)
    )
    return ("failed", *failure) if failure else ("ok", None, None)


def _memory(ended: Exit) -> tuple[str, str] | None:
    if ended.out_of_memory:
        return "out-of-memory", "the machine's memory limit ended it; give the cell more, or run fewer at a time"
    return None


def _reported(recorder: Recorder, ended: Exit) -> tuple[str, str] | None:
    if recorder.problem:
        return "protocol", f"its output broke the protocol: {recorder.problem}"
    if recorder.error:
        return recorder.error["kind"], recorder.error["message"]
    if recorder.torn and ended.code == 0:
        return "protocol", f"its output broke the protocol: {recorder.torn}"
    if recorder.end is None or ended.code != 0:
        return "crash", f"its process ended with {_code(ended.code)} {'after' if recorder.end else 'before'} its `end`"
    if recorder.end["status"] != "ok":
        return "bug", "it ended with status failed and printed no error"
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
    """(error kind, reason) where it computes on another device than it was given: such a result is worse than none."""
    if recorder.environment is None:
        return "protocol", "it never printed its environment"
    if recorder.environment["framework"] != cell.framework:
        return "protocol", f"it ran {recorder.environment['framework']} where {cell.framework} was asked for"
    device = recorder.environment["device"]
    if device["kind"] != cell.device_kind:
        return "wrong-device", f"it ran on {device['kind']} ({device['name']}) where {cell.device_kind} was asked for"
    if device["kind"] == "cpu" and device["count"] != cell.devices:
        given = f"{cell.devices} processes or virtual devices were" if cell.devices > 1 else "one was"
        return "wrong-device", f"it ran on {device['count']} CPU devices where {given} asked for"
    if uuids and not same_gpus(device["uuids"], uuids):
        where = ", ".join(device["uuids"]) or "a GPU that it does not name"
        return "wrong-device", f"it ran on {where} and was given {', '.join(uuids)}"
    return None


def other_code(recorder: Recorder, planned: str | None) -> tuple[str, str] | None:
    """(error kind, reason) where it runs other code than was planned, whose digest is `planned`: a stale image, or an edit meanwhile."""
    if planned is None or recorder.environment is None:
        return None
    ran = str(recorder.environment["code_sha256"])
    if ran == planned:
        return None
    return "protocol", (
        f"it ran a bench with the digest {ran[:12]}, and the one that was planned has {planned[:12]}: "
        "its image is of another bench, or the checkout was edited meanwhile; start a new run"
    )


def _kernels_of_cpu(recorder: Recorder, cell: Cell) -> tuple[str, str] | None:
    """The share is of a GPU's time: a CPU cell that has one would be called bound by its host."""
    if cell.device_kind == "cpu" and "kernel_share" in recorder.row:
        return "protocol", "it ran on the CPU and printed `kernels`, which is of a GPU"
    return None


def _other_data(recorder: Recorder, data_given: bool) -> tuple[str, str] | None:
    """Where it says that it trained on files which nobody gave it: such a claim would excuse it from the check of its losses."""
    if data_given or recorder.data is None or recorder.data["source"] == "generated":
        return None
    return "protocol", "it says that it trained on files, and no folder with data was given to it"


def _parity(recorder: Recorder, cell: Cell) -> tuple[str, str] | None:
    rows = recorder.checks(cell)
    if not rows:
        return "parity", "it ended without the parity check, so nothing shows that it computes the same network"
    failed = [row for row in rows if not row["passed"]]
    operations = {(row["operation"], row["direction"]) for row in recorder.rows["operations"]}
    wrong_list = parity.incomplete(rows, _checked(cell), recorder.steps(), operations)
    if not failed or wrong_list:
        return ("parity", wrong_list) if wrong_list else None
    worst = max(failed, key=lambda r: (r["error"] is None, (r["error"] or 0.0) / (r["bound"] or 1e-300)))
    error = "is not finite" if worst["error"] is None else f"is off by {worst['error']:.2g}"
    measured = all(row["phase"] == parity.PROOF for row in failed)
    what = "the adapter that was measured computes something else" if measured else "it computes something else"
    return "parity", (
        f"{what}: {worst['quantity']} {worst['tensor']} {error} where {worst['bound']:.2g} is "
        f"allowed ({len(failed)} of {len(rows)} quantities fail)"
    )


def _unproved(recorder: Recorder, cell: Cell) -> tuple[str, str] | None:
    """Where the cell did not check a quantity that is due, in the phase in which it is."""
    checked = {(row["phase"], row["quantity"]) for row in recorder.rows["parity"]}
    told = {rules.EXCUSES.get(row["what"]) for row in recorder.rows["left_out"]}
    checked |= {(parity.PROOF, quantity) for quantity in told & _excused(recorder, cell)}
    if recorder.measured_before_proof not in (None, len(recorder.rows["samples"])):
        return "parity", "it measured more windows after its adapter was checked, so nothing shows what they computed"
    missing = [key for key in parity.due(_checked(cell), checked) if key not in checked]
    if not missing:
        return None
    phase, quantity = missing[0]
    where = "on the adapter that was measured" if phase == parity.PROOF else "before it was measured"
    more = f" ({len(missing)} quantities are not checked)" if len(missing) > 1 else ""
    return "parity", f"it ended without a check that is due {where}: {parity.name_of(quantity)}{more}"


def _excused(recorder: Recorder, cell: Cell) -> set[str]:
    """The quantities that the cell need not check, as this host knows: what a cell says of itself excuses nothing."""
    excused = set()
    if cell.workload in rules.framework_declaration(cell.framework).get("uncounted", ()):
        excused.add("updates")
    if data := recorder.data:
        stored = rules.stored_losses(cell.workload, cell.batch, cell.seed, data["train_items"], cell.precision)
        if rules.losses_reason(stored, data["source"], cell.devices):
            excused.add("learning")
    return excused


def _nothing_measured(recorder: Recorder) -> tuple[str, str] | None:
    if not recorder.rows["operations"] and all(sample["stage"] != "steady" for sample in recorder.rows["samples"]):
        return "protocol", "it ended without one steady window"
    # A short run would count as the specification's.
    if "short" not in recorder.row:
        return (
            "protocol",
            "it ended without its `plan`, so nothing shows whether its run is as long as the specification's",
        )
    return None
