"""The short way for a line that fits is the way of bench.protocol: it takes nothing else, and makes nothing else of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bench.protocol import MAX_LINE_BYTES, ProtocolError, parse
from runner.admission.record import Recorder, _at_once, event_of
from tests.fixtures.waiting import within
from tests.unit.strangers import mutated, odd_somewhere

LINES = [
    line
    for path in sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))
    for line in path.read_bytes().splitlines()
]


def refused_by_protocol(line: bytes) -> tuple[Any, str | None]:
    """The event that bench.protocol makes of a line, and why it refuses the line."""
    try:
        return parse(line), None
    except ProtocolError as error:
        return None, str(error)


def test_every_recorded_line_takes_the_short_way() -> None:
    assert [line for line in LINES if _at_once(line) != parse(line)] == []


def test_the_short_way_takes_no_line_that_the_protocol_refuses() -> None:
    short = [line for line in LINES if len(line) < 2000]
    ways = {"taken": 0, "refused": 0}
    for number in range(6000):
        chance = random.Random(number)
        line = chance.choice(short)
        line = mutated(line, chance) if number % 2 else json.dumps(odd_somewhere(json.loads(line), chance)).encode()
        event, why = refused_by_protocol(line)
        ways["refused" if why else "taken"] += 1
        assert _at_once(line) in (None, event), line
        if why:
            with pytest.raises(ProtocolError) as caught:
                event_of(line)
            assert str(caught.value) == why
    assert min(ways.values()) > 200


@pytest.mark.parametrize(
    "line",
    [
        b" " * MAX_LINE_BYTES + b"{}",
        b'{"event":["end"],"t":1.0,"v":1}',
        b'{"event":"memory","host_peak_bytes":1,"device_peak_bytes":null,"t":1.0,"v":true}',
        b'{"event":"memory","host_peak_bytes":1,"device_peak_bytes":null,"t":1.0,"v":1.0}',
        b'{"event":"memory","host_peak_bytes":1,"device_peak_bytes":null,"t":NaN,"v":1}',
        b'{"event":"memory","host_peak_bytes":1,"device_peak_bytes":null,"t":1.0,"v":1} x',
        b"[" * 100_000,
    ],
    ids=lambda line: repr(line[-30:]),
)
def test_a_line_that_does_not_fit_is_refused_in_the_protocols_words(line: bytes) -> None:
    with pytest.raises(ProtocolError) as own:
        event_of(line)
    with pytest.raises(ProtocolError) as said:
        parse(line)
    assert str(own.value) == str(said.value)


def test_a_line_that_comes_byte_by_byte_is_not_copied_each_time() -> None:
    """A parcel of a few kB may hold two hundred thousand pieces."""

    def fed() -> Recorder:
        recorder = Recorder()
        for _ in range(200_000):
            recorder.feed(b"x", 1.0)
        return recorder

    assert within(2.0, fed).problem is None
