"""Makes the store's rows of what one repeat of a cell prints: chunks of output -> checked events -> rows.

A cell's output is untrusted. Lines, counts and totals are bounded, and every event is checked against the protocol. The first line
that does not fit fails the cell; the rows before it are kept.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import protocol, rules
from runner.machine.devices import same_gpus
from runner.machine.telemetry import HERTZ
from runner.machine.telemetry_cpu import Row
from runner.messages.of_gpus import DEVICE_TAKEN
from runner.results import gpu_facts, parcel, parity
from runner.results.plausible.arrivals import Arrivals
from runner.results.plausible.counts import Counts
from runner.results.plausible.windows import Phases

if TYPE_CHECKING:
    from runner.plan.combination import Cell


# The event in a line that a cell printed, checked against the protocol and against what the columns of the store hold.
#
# bench.protocol says what an event is. A repeat has some ten thousand lines, so what their checks need is looked up once here, and a line
# that fits is accepted without its function. A line that does not fit goes through it: there is one place that says why.

_MAX_INT32 = 2**31 - 1
# Event -> its fields whose columns are that narrow.
_INT32 = {"sample": ("index", "steps"), "operation": ("buffers", "index"), "profile": ("steps",)}

_SECONDS, _COUNT = protocol.EVENTS["sample"]["seconds"], protocol.EVENTS["sample"]["index"]
# Event -> the check of each of its fields, but for its kind.
_CHECKS: dict[str, dict[str, Callable[[Any], bool]]] = {
    kind: {**fields, "t": _SECONDS, "v": _COUNT} for kind, fields in protocol.EVENTS.items()
}
_NAMES = {kind: {*checks, "event"} for kind, checks in _CHECKS.items()}
# JSON's whole numbers have no limit. Event -> its fields that may have one beyond 64 bits.
_WIDE = {kind: [name for name, fits in checks.items() if fits(2**63)] for kind, checks in _CHECKS.items()}


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


# json.loads would make a decoder for each line.
_DECODER = json.JSONDecoder(parse_constant=_no_number)


def event_of(line: bytes) -> dict[str, Any]:
    """The event in a line without its end. Raises ProtocolError."""
    event = _at_once(line) or protocol.parse(line)
    # Half of a surrogate pair cannot be written as UTF-8. Only an escape can stand for one, and few lines have any.
    if b"\\u" in line and b"\\ud" in line.lower():
        try:
            json.dumps(event, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise protocol.ProtocolError("a string is not Unicode text", line) from None
    kind = event["event"]
    for name in _INT32.get(kind, ()):
        if event[name] > _MAX_INT32:
            raise protocol.ProtocolError(f"{kind}.{name} is above 2**31", line)
    # The columns are doubles.
    for name in _WIDE[kind]:
        if isinstance(event[name], int) and abs(event[name]) >= 2**63:
            event[name] = float(event[name])
    return event


def _at_once(line: bytes) -> dict[str, Any] | None:
    """The event in a line that fits the protocol; None where bench.protocol.parse must say what is wrong, if anything."""
    if len(line) > protocol.MAX_LINE_BYTES:
        return None
    try:
        text = line.decode("utf-8")
        event, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if type(event) is not dict or end != len(text):
        return None
    kind = event.get("event")
    if type(kind) is not str or event.keys() != _NAMES.get(kind) or event["v"] != protocol.VERSION:
        return None
    for name, fits in _CHECKS[kind].items():
        if not fits(event[name]):
            return None
    return event


# The summary of a cell's telemetry: energy, heat and throttling over its steady windows. Pure.


def on_the_cells_clock(rows: Iterable[Mapping[str, Any]], started_unix: float) -> list[Row]:
    """The rows with `seconds` from the start of the cell's process, as the samples have it."""
    return [{"seconds": row["unix"] - started_unix, **{k: v for k, v in row.items() if k != "unix"}} for row in rows]


def telemetry_summary(rows: Sequence[Row], samples: Sequence[Mapping[str, Any]], step: float = 1 / HERTZ) -> Row:
    """The columns of `cells` that telemetry gives, over the steady windows: energy, joules per item, heat, memory, throttling, other work.

    `rows` and `samples` are on the same clock; `step` seconds lie between the rows of a device.
    Every value is None where the devices did not say.
    """
    steady = [sample for sample in samples if sample["stage"] == "steady"]
    if not steady:
        return {}
    devices: dict[str, list[Row]] = {}
    for row in rows:
        devices.setdefault(row["device"], []).append(row)
    begin = min(sample["begin_seconds"] for sample in steady)
    end = max(sample["begin_seconds"] + sample["seconds"] for sample in steady)
    cpu = devices.pop("cpu", [])
    others = {"other_cpus": other_cpus(cpu, begin, end)}
    of_cpu = [row for row in cpu if row.get("energy_joules") is not None]
    gpus = devices or ({"cpu": of_cpu} if of_cpu else {})
    return others | _of_devices(gpus, begin, end, sum(sample["items"] for sample in steady), step) if gpus else others


def other_cpus(rows: Sequence[Row], begin: float, end: float) -> float | None:
    """How many CPUs other work than the cell's kept busy between two times; None where no two rows within them say.

    The counters move in steps of a hundredth of a second, so a little less than none is none.
    """
    points: list[tuple[float, float]] = [
        (row["seconds"], row["machine_cpu_seconds"] - row["cpu_seconds"])
        for row in rows
        if begin <= row["seconds"] <= end
        and row.get("machine_cpu_seconds") is not None
        and row.get("cpu_seconds") is not None
    ]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    return max(0.0, (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]))


def _of_devices(gpus: Mapping[str, Sequence[Row]], begin: float, end: float, items: int, step: float) -> Row:
    """The columns of a cell's GPUs, or of the packages of its CPU."""
    spent = [energy(of_gpu, begin, end, step) for of_gpu in gpus.values()]
    joules = sum(each for each, _ in spent if each is not None) if all(each is not None for each, _ in spent) else None
    inside = [row for of_gpu in gpus.values() for row in of_gpu if begin <= row["seconds"] <= end]
    reasons = 0
    for row in inside:
        reasons |= int(row.get("throttle_reasons") or 0)
    reported = any(row.get("throttle_reasons") is not None for row in inside)
    heat = [row["temperature_celsius"] for row in inside if row.get("temperature_celsius") is not None]
    used = [row["memory_bytes"] for row in inside if row["device"] != "cpu" and row.get("memory_bytes") is not None]
    return {
        "energy_joules": joules,
        "energy_source": " and ".join(sorted({source for _, source in spent})) if joules is not None else None,
        "joules_per_item": joules / items if joules is not None and items else None,
        "mean_power_watts": joules / (end - begin) if joules is not None and end > begin else None,
        "max_temperature_celsius": max(heat, default=None),
        "device_used_bytes": max(used, default=None),
        "throttled": bool(reasons & gpu_facts.THROTTLED) if reported else None,
        "throttled_by": gpu_facts.reasons_of(reasons) if reported else None,
    }


def energy(rows: Sequence[Row], begin: float, end: float, step: float = 1 / HERTZ) -> tuple[float | None, str]:
    """(joules that one device took between two times, "counter" or "power"): of its counter, else the integral of its power.

    None where the rows do not reach from one end to the other, within two sampling steps.
    """
    for column, source in (("energy_joules", "counter"), ("power_watts", "power")):
        points = [(row["seconds"], row[column]) for row in rows if row.get(column) is not None]
        if len(points) < 2 or points[0][0] > begin + 2 * step or points[-1][0] < end - 2 * step:
            continue
        if source == "counter":
            return value_at(points, end) - value_at(points, begin), source
        edges = [
            (begin, value_at(points, begin)),
            *(p for p in points if begin < p[0] < end),
            (end, value_at(points, end)),
        ]
        return integral(edges), source
    return None, "none"


def integral(points: Sequence[tuple[float, float]]) -> float:
    """The area below the straight lines between points (time, value)."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))


def value_at(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value at a time, on the straight line between two points (time, value); beyond the ends, on the line of the last two."""
    after = next((n for n, (seconds, _) in enumerate(points) if seconds >= at), len(points) - 1)
    (t0, v0), (t1, v1) = points[max(0, after - 1)], points[max(1, after)]
    return v0 if t1 == t0 else v0 + (v1 - v0) * (at - t0) / (t1 - t0)


# A profile is a table for a person; the bench prints some forty rows of it.
_MAX_PROFILE_ROWS = 200

# Event -> the table that it is a row of, and its fields whose columns have another name.
_ROWS: dict[str, tuple[str, dict[str, str]]] = {
    "sample": ("samples", {"begin": "begin_seconds"}),
    "operation": ("operations", {"begin": "begin_seconds"}),
    "left-out": ("left_out", {}),
    "profile": ("profile", {}),
    "metric": ("metrics", {"seconds": "train_seconds"}),
    "parity": ("parity", {}),
}
# Event -> (its own fields, their columns).
_FIELDS = {
    kind: [(name, renamed.get(name, name)) for name in protocol.EVENTS[kind]] for kind, (_, renamed) in _ROWS.items()
}

# Event -> its fields that the cell's own row has, and their columns.
_COLUMNS: dict[str, dict[str, str]] = {
    "data": {"source": "data_source", "sha256": "data_sha256"},
    "plan": {"short": "short"},
    "memory": {"host_peak_bytes": "host_peak_bytes", "device_peak_bytes": "device_peak_bytes"},
    "kernels": {"share": "kernel_share"},
    "end": {"stop": "stop", "noise": "noise", "steps": "steps"},
}


def _point(event: dict[str, Any]) -> tuple[str, ...]:
    return event["operation"], event["direction"], event["size"]


class Recorder:
    """Collects the events of one repeat. `observe` gets each checked event."""

    def __init__(self, observe: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._observe = observe
        self._pending = bytearray()
        self._bytes = 0
        self._count = 0
        # The first breach of the protocol.
        self.problem: str | None = None
        # The problem is a line that is no JSON: such as what a launcher prints after it has lost a process.
        self.foreign = False
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
        # (operation, direction, size) -> the kernel that the framework took, where it has several.
        self._kernels: dict[tuple[str, ...], str] = {}
        # The names of the metrics so far.
        self._metrics: set[str] = set()
        # When the windows came; empty where nobody noted that.
        self.arrivals = Arrivals()
        self.phases = Phases()
        self.counts = Counts()
        self._at: float | None = None

    def feed(self, chunk: bytes, at: float | None = None) -> None:
        """Take the next bytes of the cell's output, which came at this time (seconds, time.monotonic). After a problem they are ignored."""
        if self.problem:
            return
        self._at = at
        self._bytes += len(chunk)
        whole, end, rest = chunk.rpartition(b"\n")
        if end:
            for line in (bytes(self._pending) + whole).split(b"\n"):
                self._take(line)
                if self.problem:
                    return
            self._pending.clear()
        # A line may come byte by byte: to copy all of it each time would take minutes.
        self._pending += rest
        if len(self._pending) > protocol.MAX_LINE_BYTES:
            self._take(bytes(self._pending))
        elif self._bytes > parcel.MAX_TOTAL_BYTES:
            self.problem = f"the cell printed more than {parcel.MAX_TOTAL_BYTES} bytes of events"

    def close(self) -> None:
        """The output has ended. A line without its end is torn."""
        if self._pending and not self.problem:
            self.torn = str(protocol.ProtocolError("the last line is torn", bytes(self._pending)))

    @property
    def ended_well(self) -> bool:
        """True if its last event is an `end` with status ok."""
        return self.problem is None and self.end is not None and self.end["status"] == "ok"

    def _take(self, line: bytes) -> None:
        self._count += 1
        try:
            if self._count > parcel.MAX_EVENTS:
                raise protocol.ProtocolError(f"more than {parcel.MAX_EVENTS} events", line)
            if self.end is not None:
                raise protocol.ProtocolError("a line after `end`", line)
            event = event_of(line)
            self._fits_earlier(event, line)
        except protocol.ProtocolError as error:
            self.problem, self.foreign = str(error), not line.startswith(b"{")
            return
        self._keep(event)
        if self._observe:
            self._observe(event)

    def _fits_earlier(self, event: dict[str, Any], line: bytes) -> None:
        """Raise ProtocolError for what an earlier event of the cell rules out."""
        kind = event["event"]
        if kind == "data" and self.data is not None:
            raise protocol.ProtocolError("a second `data`", line)
        if kind == "metric":
            self._metrics.add(event["name"])
            if len(self._metrics) > parcel.MOST_METRICS:
                raise protocol.ProtocolError(f"more than {parcel.MOST_METRICS} metrics", line)
        if kind == "sample":
            if event["index"] in self._indexes:
                raise protocol.ProtocolError(f"a second sample with index {event['index']}", line)
            self._indexes.add(event["index"])
        if kind == "operation":
            window = tuple(event[name] for name in ("operation", "direction", "size", "index"))
            if window in self._operations:
                raise protocol.ProtocolError(f"a second operation of that size with index {event['index']}", line)
            self._operations.add(window)
        if kind == "dispatch" and _point(event) in self._kernels:
            raise protocol.ProtocolError("a second `dispatch` of that size", line)

    def _keep(self, event: dict[str, Any]) -> None:
        """Put an event into the rows and columns that it belongs to."""
        kind = event["event"]
        self.phases.note(event, self._at)
        self.counts.note(event)
        if self._at is not None:
            self.arrivals.note(event, self._at)
        if kind in _ROWS:
            rows = self.rows[_ROWS[kind][0]]
            if kind != "profile" or len(rows) < _MAX_PROFILE_ROWS:
                row = {column: event[name] for name, column in _FIELDS[kind]}
                if kind == "parity":
                    row |= self._placed()
                elif kind == "operation":
                    row["kernel"] = self._kernels.get(_point(event))
                rows.append(row)
        if kind in _COLUMNS:
            self.row |= {column: event[field] for field, column in _COLUMNS[kind].items()}
            # Older benches cut a quotient above 1 to 1: the profiler had slowed the kernels, and the share is not known.
            if kind == "kernels" and event["share"] == 1:
                self.row["kernel_share"] = None
        if kind == "dispatch":
            self._kernels[_point(event)] = event["kernel"]
        elif kind == "environment":
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
            # A framework does not tell it from an error of the cell. The next one may have the GPU.
            taken = re.search(DEVICE_TAKEN, str(event["message"]))
            self.error = event | {"kind": "no-device"} if taken else event
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
        row = cell.row() | self.row | columns
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


def wrong_device(recorder: Recorder, cell: Cell, uuids: tuple[str, ...]) -> tuple[str, str] | None:
    """The reason if a cell computes on another device than it was given: such a result is worse than none."""
    if recorder.environment is None:
        return None
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
    """The reason if a cell runs other code than was planned, whose digest is `planned`: a stale image, or an edit meanwhile."""
    if planned is None or recorder.environment is None:
        return None
    ran = str(recorder.environment["code_sha256"])
    if ran == planned:
        return None
    return "protocol", (
        f"it ran a bench with the digest {ran[:12]}, and the one that was planned has {planned[:12]}: "
        "its image is of another bench, or the checkout was edited meanwhile; start a new run"
    )
