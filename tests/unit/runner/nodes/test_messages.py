"""Every message has bounds, and its texts can be shown."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.nodes.frames import MOST_HEADER_BYTES, Frame, FrameError
from runner.nodes.wire import Hello, Run, Said, from_agent, from_driver
from tests.fixtures.nodes import ATTEMPT, CELL, HELLO
from tests.fixtures.nodes import SAID as FROM_AGENT

DESCRIPTION = dict(HELLO.frame().header)


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: message.kind)
def test_what_an_agent_says_comes_back(message: Any) -> None:
    assert from_agent(message.frame()) == message


def test_what_a_driver_says_comes_back() -> None:
    run = Run(attempt=ATTEMPT, cell=CELL, repeat=3, uuids=("GPU-1",))
    assert from_driver(run.frame()) == run


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"kind": "reboot"}, "is no message of this release"),
        ({}, "is no message of this release"),
        ({"kind": "beat", "more": 1}, "there is no such field"),
        ({"kind": "progress", "attempt": ATTEMPT, "phase": "idle"}, "phase"),
        ({"kind": "failed", "attempt": "../../x", "reason": ""}, "attempt"),
        ({"kind": "begun", "spooled": [ATTEMPT] * 10_001}, "10000"),
        ({"kind": "prepared", "image": "i", "digest": "\x1b[2J", "why": None}, "digest"),
        (DESCRIPTION | {"engine": "rm -rf"}, "engine"),
        (DESCRIPTION | {"fetch_bytes": 2**63}, "fetch_bytes"),
        (DESCRIPTION | {"host": "a\x1b[2J"}, "a text that cannot be shown as it is"),
        (DESCRIPTION | {"kernel": "6\nrunner: all is well"}, "a text that cannot be shown as it is"),
        (DESCRIPTION | {"cells": []}, "cells in its header"),
    ],
)
def test_what_no_agent_says_is_refused(header: dict[str, Any], why: str) -> None:
    with pytest.raises(FrameError, match=why):
        from_agent(Frame(header, HELLO.frame().body if header.get("kind") == "hello" else b""))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (b"", "a node's plan is not JSON"),
        (b"[]", "is no message of this release"),
        (b'{"cells": []}', "skips"),
        (b'{"cells": [], "skips": [], "more": 1}', "there is no such field"),
        (b'{"cells": ["\\u001b[2J"], "skips": []}', "a text that cannot be shown as it is"),
        (b'{"cells": [' + b"[]," * 200_000 + b'[]], "skips": []}', "more than 200000 values"),
        (b" " * (MOST_HEADER_BYTES + 1), "is the most"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_plan_that_no_node_has_is_refused_each_time(plan: bytes, why: str) -> None:
    for _ in range(2):
        with pytest.raises(FrameError, match=why):
            from_agent(Frame(DESCRIPTION, plan))


def test_equal_nodes_have_the_same_cells_and_others_their_own() -> None:
    one, same = (from_agent(HELLO.model_copy(update={"host": host}).frame()) for host in ("a", "b"))
    other = from_agent(HELLO.model_copy(update={"cells": (replace(CELL, seed=7),)}).frame())
    assert isinstance(one, Hello)
    assert isinstance(same, Hello)
    assert isinstance(other, Hello)
    assert (one.host, same.host) == ("a", "b")
    assert one.cells is same.cells
    assert one.cells == HELLO.cells
    assert other.cells == (replace(CELL, seed=7),)


@pytest.mark.parametrize("run", ["..", ".", "../x", "", "a/b", "x" * 101])
def test_a_run_whose_name_is_no_folder_of_its_own_is_refused(run: str) -> None:
    with pytest.raises(FrameError, match="begin.run"):
        from_driver(Frame({"kind": "begin", "run": run, "leased": True}))


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=8), values, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(FROM_AGENT), st.data())
def test_a_message_with_any_field_changed_is_read_or_refused(message: Any, data: st.DataObject) -> None:
    header = message.frame().header
    # Of a node that says what it is the body is its plan.
    plan = json.loads(message.frame().body or b"{}")
    places = [(part, name) for part in (header, plan) for name in part]
    places += [
        (part, name) for value in header.values() if isinstance(value, dict) for part in [value] for name in value
    ]
    places += [(cell, name) for cell in plan.get("cells", ()) for name in cell]
    part, name = data.draw(st.sampled_from(places))
    part[name] = data.draw(ODD)
    with contextlib.suppress(FrameError):
        body = json.dumps(plan).encode() if plan else b""
        assert from_agent(Frame(header, body)).kind == header["kind"]


def test_a_sentence_of_an_agent_is_one_line_without_escapes() -> None:
    said = from_agent(Frame({"kind": "said", "line": "one\ntwo\x1b[31m\x07"}))
    assert isinstance(said, Said)
    assert said.line == "one⏎two␇"
