"""The event in a line that a cell printed, checked against the protocol and against what the columns of the store hold.

bench.protocol says what an event is. A repeat has some ten thousand lines, so what their checks need is looked up once here, and a line
that fits is accepted without its function. A line that does not fit goes through it: there is one place that says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bench import protocol
from bench.protocol import EVENTS, MAX_LINE_BYTES, VERSION, ProtocolError

_MAX_INT32 = 2**31 - 1
# Event -> its fields whose columns are that narrow.
_INT32 = {"sample": ("index", "steps"), "operation": ("buffers", "index"), "profile": ("steps",)}

_SECONDS, _COUNT = EVENTS["sample"]["seconds"], EVENTS["sample"]["index"]
# Event -> the check of each of its fields, but for its kind.
_CHECKS: dict[str, dict[str, Callable[[Any], bool]]] = {
    kind: {**fields, "t": _SECONDS, "v": _COUNT} for kind, fields in EVENTS.items()
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
            raise ProtocolError("a string is not Unicode text", line) from None
    kind = event["event"]
    for name in _INT32.get(kind, ()):
        if event[name] > _MAX_INT32:
            raise ProtocolError(f"{kind}.{name} is above 2**31", line)
    # The columns are doubles.
    for name in _WIDE[kind]:
        if isinstance(event[name], int) and abs(event[name]) >= 2**63:
            event[name] = float(event[name])
    return event


def _at_once(line: bytes) -> dict[str, Any] | None:
    """The event in a line that fits the protocol; None where bench.protocol.parse must say what is wrong, if anything."""
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        text = line.decode("utf-8")
        event, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if type(event) is not dict or end != len(text):
        return None
    kind = event.get("event")
    if type(kind) is not str or event.keys() != _NAMES.get(kind) or event["v"] != VERSION:
        return None
    for name, fits in _CHECKS[kind].items():
        if not fits(event[name]):
            return None
    return event
