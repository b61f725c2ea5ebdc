"""The parcel: the one form of a measured repeat, as a file and on a pipe. What it says is judged by runner.admission.

It is gzip of JSON lines, so that `zcat` shows it: the header, each piece of what the cell printed with the time at which it came, the
end of the log, and the rows of telemetry. A parcel may come from another machine: a reader bounds every number, text, count and total.

Whoever makes a parcel needs the standard library only: the kit runs where nothing is installed.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import itertools
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.errors import UserError
from runner.results.on_disk.isolation import Isolation
from runner.text import in_a_line

# The version of this layout.
VERSION = 1
ENDING = ".parcel"

# A whole run has 40 000 windows at most, of four events each (bench.timing.MOST_WINDOWS). A cell that prints more than this is broken.
MAX_EVENTS = 200_000
MAX_TOTAL_BYTES = 64 * 1024 * 1024
# A metric has a curve of its own in the report; the bench prints some fifty.
MOST_METRICS = 1000

# Each piece of the output ends a line, but for the last one. The cell is ended after the read that breaks the protocol.
MOST_PIECES = MAX_EVENTS + 2
_MOST_OUTPUT_BYTES = MAX_TOTAL_BYTES + (1 << 20)
MOST_TELEMETRY_BYTES = 48 << 20
MOST_ROWS = 200_000
# An escape makes a byte of text two at most (_ACTS), and beside its text a piece takes some fifty bytes.
MOST_UNPACKED_BYTES = 2 * _MOST_OUTPUT_BYTES + MOST_PIECES * 64 + MOST_TELEMETRY_BYTES + (2 << 20)
# Of one line of the tape, or of the log: a cell is ended once a line of its output has 256 KiB (bench.protocol.MAX_LINE_BYTES), after a
# read of 1 MiB at most. JSON makes thousands of objects of a few kB, so a line is measured before it is parsed.
_MOST_LINE_BYTES = 2 * ((256 << 10) + (1 << 20)) + 64
# Of the header, whose fields take some hundred kB at most.
_MOST_HEADER_BYTES = 1 << 20
# Incompressible data grow a little.
MOST_BYTES = 140 << 20

# Of the header.
MOST_STILL = 1000
MOST_XIDS = 1000
MOST_REASON = 20_000
MOST_FAULT = 2000
# Of the log, in characters: as much as runner.engines.base.LOG_TAIL_BYTES keeps.
MOST_LOG = 16 * 1024
_MOST_DEVICES = 64
_MOST_FOREIGN = 16
_MOST_LIMITS = 32

# Characters that JSON writes as six. A piece that has one is written as base64, as one that is no UTF-8 is.
_ACTS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# A piece up to its text. Its time is one that _piece takes.
_WRITTEN = re.compile(rb'\{"at":((?:0|[1-9][0-9]{0,11})\.[0-9]{1,30}),"output":(?=")')
_DECODER = json.JSONDecoder()

# Why a runner ended a cell, or could not run it.
ENDED_BY = (
    "time-limit", "hang", "disk", "wrong-device", "protocol", "engine", "gpu-lost", "node-lost",
)  # fmt: skip


class ParcelError(UserError):
    """A file that is no parcel, or a parcel with a field that no runner writes; the message names both. Its reader adds the remedy."""


@dataclass(frozen=True)
class Parcel:
    """One repeat of a cell that has ended, or that could not be run."""

    cell_id: str
    repeat: int
    engine: str
    # True if the user gave the folder of the real data.
    data_given: bool = False
    # Which attempt at it this is, and on which node, where the run has several.
    attempt: str | None = None
    node: str | None = None
    image_digest: str | None = None
    # The GPUs that it was given, and the boards that they are on.
    uuids: tuple[str, ...] = ()
    boards: tuple[str, ...] = ()
    # How many logical CPUs it had; 0 where that is not known.
    cpus: int = 0
    # As a shell tells it; None of a cell that never ran.
    code: int | None = None
    out_of_memory: bool = False
    # (kind, reason) where the runner ended the cell, or could not run it.
    ended_by: tuple[str, str] | None = None
    started_unix: float | None = None
    wall_seconds: float | None = None
    # By the clock of the tape: when its engine was called, and from when to when the engine or the runner stood still.
    began: float | None = None
    still: tuple[tuple[float, float], ...] = ()
    jit_cache_grew_bytes: int | None = None
    # (board, number) of the driver's critical errors.
    xids: tuple[tuple[str, int], ...] = ()
    # The fault of the telemetry, if any.
    fault: str | None = None
    # Seconds between two rows of a device.
    row_seconds: float = 0.1
    # The UUIDs on which NVML showed a process of the cell, why it showed none on the others, and a sentence for each process of others.
    proved: tuple[str, ...] = ()
    unproved: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    # The limits that its engine says that its container had (runner.results.on_disk.isolation).
    isolation: Isolation | None = None
    # Its output, each piece with the time at which it came; None where nobody noted that.
    tape: tuple[tuple[float | None, bytes], ...] = ()
    # The end of its standard error.
    log: str = ""
    # Rows of the table `telemetry`, with `unix` instead of a time on the cell's clock.
    telemetry: tuple[Mapping[str, Any], ...] = ()

    @property
    def never_ran(self) -> bool:
        """True if no process of the cell ended: its engine could not start it, or it was lost with its node."""
        return self.code is None


def encode(parcel: Parcel) -> bytes:
    """A parcel as it is written: the same bytes for the same parcel."""
    header = {name: getattr(parcel, name) for name in _HEADER} | {"unproved": dict(parcel.unproved)}
    lines = [{"parcel": VERSION, **header}, *map(_piece_as_json, parcel.tape), {"log": parcel.log}, *parcel.telemetry]
    # A text that is half of a character would not be read again: a question mark stands for it.
    content = b"".join(_as_line(line) for line in lines)
    return gzip.compress(content, 6, mtime=0)


def _as_line(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace") + b"\n"


def telemetry_bytes(rows: Iterable[Mapping[str, Any]]) -> int:
    """How many bytes the rows take before they are packed. A parcel holds MOST_TELEMETRY_BYTES."""
    return sum(len(_as_line(row)) for row in rows)


def _piece_as_json(piece: tuple[float | None, bytes]) -> dict[str, Any]:
    at, output = piece
    if not _ACTS.search(output):
        try:
            return {"at": at, "output": output.decode("utf-8")}
        except UnicodeDecodeError:
            pass
    return {"at": at, "base64": base64.b64encode(output).decode("ascii")}


def decode(content: bytes, name: str) -> Parcel:
    """The parcel that a file of this name holds. Raises ParcelError."""
    # It needs pydantic, which the machine that a kit measures may lack.
    from runner.results.untrusted import UntrustedError, document, telemetry_rows

    lines = io.BytesIO(_unpacked(content, name))
    tape: list[tuple[float | None, bytes]] = []
    try:
        header = _header(document(_line(lines, "its header", _MOST_HEADER_BYTES), "its header"))
        _check_end(header)
        for number in itertools.count(2):
            line = _line(lines, number, _MOST_LINE_BYTES)
            piece = _piece_as_written(line)
            if piece is None:
                # Its text may be all commas.
                value = document(line, f"line {number}", _MOST_LINE_BYTES) if line else None
                if not isinstance(value, dict):
                    raise ValueError("log: it is missing")
                if "log" in value:
                    log = _field("log", value["log"], _text(MOST_LOG))
                    break
                piece = _piece(value)
            tape.append(piece)
            if len(tape) > MOST_PIECES:
                raise ValueError(f"tape: it has more than {MOST_PIECES} pieces")
        _check_tape(tape)
        rows = lines.read(MOST_TELEMETRY_BYTES + 1)
        if len(rows) > MOST_TELEMETRY_BYTES:
            raise ValueError(f"telemetry: it has more than {MOST_TELEMETRY_BYTES} bytes")
        telemetry = telemetry_rows(rows, "telemetry", MOST_ROWS)
    except (ValueError, UntrustedError) as error:
        raise ParcelError(f"{name} is no parcel that a runner writes: {in_a_line(str(error), 400)}") from None
    return Parcel(**header, tape=tuple(tape), log=log, telemetry=telemetry)


def _line(lines: io.BytesIO, name: str | int, most: int) -> bytes:
    """The next line; empty after the last. Raises ValueError for one that is longer than a runner writes. `name`: of it, or its number."""
    line = lines.readline(most + 1)
    if len(line) > most:
        raise ValueError(f"{name if isinstance(name, str) else f'line {name}'} has more than {most} bytes")
    return line


def unpacked_bytes(content: bytes) -> int:
    """How many bytes a parcel unpacks to, as its end says. `decode` refuses one that unpacks to more before it does so."""
    return int.from_bytes(content[-4:], "little")


def _unpacked(content: bytes, name: str) -> bytes:
    """The lines in a gzip file of one member. It is never unpacked beyond the most that a parcel holds, or what its end says."""
    wrong = "it is damaged"
    try:
        unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        data = unzip.decompress(content, min(MOST_UNPACKED_BYTES, unpacked_bytes(content)) + 1)
        if len(data) > MOST_UNPACKED_BYTES:
            wrong = "it unpacks to more than any that a runner writes"
        elif unzip.eof and not unzip.unused_data:
            if data.endswith(b"\n"):
                return data
            wrong = "its last line has no end"
    except zlib.error as error:
        wrong = f"it is damaged, or no gzip file ({error})"
    raise ParcelError(f"{name} is no parcel: {wrong}")


def _piece_as_written(line: bytes) -> tuple[float | None, bytes] | None:
    """The piece in a line as `encode` writes one of text. None of any other line, which `_piece` takes or refuses: that takes longer."""
    head = _WRITTEN.match(line)
    if head is None:
        return None
    try:
        text = line.decode("utf-8")
        output, end = _DECODER.raw_decode(text, head.end())
        return (float(head[1]), output.encode("utf-8")) if text[end:] == "}\n" else None
    except ValueError:
        return None


def _piece(value: Mapping[str, Any]) -> tuple[float | None, bytes]:
    """A line of the tape. Raises ValueError."""
    if set(value) == {"at", "output"}:
        output = _field("output", value["output"], _text(_MOST_OUTPUT_BYTES)).encode("utf-8")
    elif set(value) == {"at", "base64"}:
        try:
            output = base64.b64decode(_field("base64", value["base64"], _text(2 * _MOST_OUTPUT_BYTES)), validate=True)
        except binascii.Error:
            raise ValueError("base64: it is none") from None
    else:
        raise ValueError("tape: a line is no piece of output")
    return _field("at", value["at"], _or_none(_number(-1e6, 1e12))), output


def _check_tape(tape: Sequence[tuple[float | None, bytes]]) -> None:
    """Raises ValueError where the times of the pieces go back, only some have one, or there is more than a cell prints."""
    times = [at for at, _ in tape if at is not None]
    if times and len(times) < len(tape):
        raise ValueError("tape: only some of the pieces have a time")
    if any(later < earlier for earlier, later in itertools.pairwise(times)):
        raise ValueError("tape: its times go back")
    if sum(len(output) for _, output in tape) > _MOST_OUTPUT_BYTES:
        raise ValueError(f"tape: it has more than {_MOST_OUTPUT_BYTES} bytes")


def _header(value: Any) -> dict[str, Any]:
    """The fields of a header. Raises ValueError."""
    if not isinstance(value, dict) or "parcel" not in value:
        raise ValueError("its first line is no header")
    if value["parcel"] != VERSION:
        raise ValueError(f"parcel: its version is not {VERSION}, so another release wrote it")
    # Parcels of this version that were written before the engine was asked lack it.
    value = {"isolation": None, **value}
    for name in sorted({*_HEADER, *value} - {"parcel"}):
        if name not in value or name not in _HEADER:
            raise ValueError(f"{name[:100]}: {'it is missing' if name in _HEADER else 'there is no such field'}")
    return {name: _field(name, value[name], check) for name, check in _HEADER.items()}


def _check_end(header: Mapping[str, Any]) -> None:
    """Raises ValueError where a header says neither how the cell's process ended nor why there was none."""
    if header["code"] is None:
        if header["ended_by"] is None:
            raise ValueError("ended_by: it is missing, and no process of the cell ended")
    elif header["started_unix"] is None or header["wall_seconds"] is None:
        raise ValueError("wall_seconds: it is missing, or started_unix is")


def _field(name: str, value: Any, check: Callable[[Any], Any]) -> Any:
    try:
        return check(value)
    except ValueError as error:
        shown = f", not {repr(value)[:100]}" if isinstance(value, str | int | float) else ""
        raise ValueError(f"{name}: it must be {error}{shown}") from None


# --- checks: each returns the value, or raises ValueError with what it must be

_Check = Callable[[Any], Any]


def _text(most: int, pattern: str = r"(?s:.*)", what: str = "a text") -> _Check:
    form = re.compile(pattern)

    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value) > most or not form.fullmatch(value):
            raise ValueError(f"{what} of {most} characters at most")
        return value

    return check


def _whole(least: int, most: int) -> _Check:
    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    return check


def _number(least: float, most: float) -> _Check:
    def check(value: Any) -> float:
        if type(value) not in (int, float) or not (math.isfinite(value) and least <= value <= most):
            raise ValueError(f"a number from {least:g} to {most:g}")
        return float(value)

    return check


def _yes_or_no(value: Any) -> Any:
    if value is not True and value is not False:
        raise ValueError("true or false")
    return value


def _or_none(check: _Check) -> _Check:
    return lambda value: None if value is None else check(value)


def _list(check: _Check, most: int) -> _Check:
    def check_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError(f"a list of {most} at most")
        return tuple(check(each) for each in value)

    return check_all


def _pair(first: _Check, second: _Check) -> _Check:
    def check(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError("a pair")
        return first(value[0]), second(value[1])

    return check


def _reasons(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > _MOST_DEVICES:
        raise ValueError(f"reasons of {_MOST_DEVICES} GPUs at most")
    return {_TEXT(uuid): _TEXT(reason) for uuid, reason in value.items()}


def isolation_field(value: Any) -> Isolation | None:
    """The limits of a container that a file has. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) != {"engine", "rootless", "limits"}:
        raise ValueError("an engine, whether it is rootless, and limits")
    limits = value["limits"]
    if not isinstance(limits, dict) or len(limits) > _MOST_LIMITS:
        raise ValueError(f"{_MOST_LIMITS} limits at most")
    return {
        "engine": _TEXT(value["engine"]),
        "rootless": _yes_or_no(value["rootless"]),
        "limits": {_TEXT(limit): list(_pair(_limit, _limit)(pair)) for limit, pair in limits.items()},
    }


def _limit(value: Any) -> Any:
    """A text, a number, yes or no, or null where the engine has nothing under that name."""
    return _TEXT(value) if isinstance(value, str) else value if type(value) in (bool, type(None)) else _COUNT(value)


_TEXT = _text(300)
_DEVICES = _list(_TEXT, _MOST_DEVICES)
_CLOCK = _number(-1e6, 1e12)
# A clock of this century, and a life of a year: no preset runs for longer than days.
MOST_UNIX = 4_102_444_800.0
_MOMENT = _number(0.0, MOST_UNIX)
_LIFE = _number(0.0, 366 * 86_400.0)
_BYTES = _whole(0, 2**63 - 1)
_COUNT = _whole(-1, 2**63 - 1)

# Field of the header -> its check.
_HEADER: dict[str, _Check] = {
    "cell_id": _text(100, r"[A-Za-z0-9_-]+", "a cell's id"),
    "repeat": _whole(1, 10_000),
    "engine": _text(60, r"[a-z0-9_-]+", "an engine's name"),
    "data_given": _yes_or_no,
    "attempt": _or_none(_text(100, r"[0-9a-f]{16}\.r[1-9][0-9]{0,4}\.[0-9a-f]{8}-[0-9]{1,9}", "an attempt's name")),
    "node": _or_none(_text(101, r"[A-Za-z0-9][A-Za-z0-9._@:-]*", "a node's name")),
    "image_digest": _or_none(_text(300, r"[A-Za-z0-9:@/+._-]*", "a digest")),
    "uuids": _DEVICES,
    "boards": _DEVICES,
    "cpus": _whole(0, 100_000),
    "code": _or_none(_whole(0, 255)),
    "out_of_memory": _yes_or_no,
    "ended_by": _or_none(_pair(_text(20, "|".join(ENDED_BY), "a kind of end"), _text(MOST_REASON))),
    "started_unix": _or_none(_MOMENT),
    "wall_seconds": _or_none(_LIFE),
    "began": _or_none(_CLOCK),
    "still": _list(_pair(_CLOCK, _CLOCK), MOST_STILL),
    "jit_cache_grew_bytes": _or_none(_BYTES),
    "xids": _list(_pair(_TEXT, _whole(0, 2**31 - 1)), MOST_XIDS),
    "fault": _or_none(_text(MOST_FAULT)),
    "row_seconds": _number(1e-6, 1e6),
    "proved": _DEVICES,
    "unproved": _reasons,
    "foreign": _list(_TEXT, _MOST_FOREIGN),
    "isolation": isolation_field,
}
