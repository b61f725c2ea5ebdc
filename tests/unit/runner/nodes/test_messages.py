"""Every message has bounds, and its texts can be shown."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.nodes.wire import messages
from runner.nodes.wire.frames import Frame, FrameError
from tests.fixtures.nodes import ATTEMPT, CELL, HELLO
from tests.fixtures.nodes import SAID as FROM_AGENT


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: message.kind)
def test_what_an_agent_says_comes_back(message: Any) -> None:
    assert messages.from_agent(message.frame()) == message


def test_what_a_driver_says_comes_back() -> None:
    run = messages.Run(attempt=ATTEMPT, cell=CELL, repeat=3, uuids=("GPU-1",))
    assert messages.from_driver(run.frame()) == run


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
        (HELLO.model_dump(mode="json") | {"engine": "rm -rf"}, "engine"),
        (HELLO.model_dump(mode="json") | {"fetch_bytes": 2**63}, "fetch_bytes"),
        (HELLO.model_dump(mode="json") | {"host": "a\x1b[2J"}, "a text that cannot be shown as it is"),
        (HELLO.model_dump(mode="json") | {"kernel": "6\nrunner: all is well"}, "a text that cannot be shown as it is"),
    ],
)
def test_what_no_agent_says_is_refused(header: dict[str, Any], why: str) -> None:
    with pytest.raises(FrameError, match=why):
        messages.from_agent(Frame(header))


@pytest.mark.parametrize("run", ["..", ".", "../x", "", "a/b", "x" * 101])
def test_a_run_whose_name_is_no_folder_of_its_own_is_refused(run: str) -> None:
    with pytest.raises(FrameError, match="begin.run"):
        messages.from_driver(Frame({"kind": "begin", "run": run, "leased": True}))


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=8), values, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(FROM_AGENT), st.data())
def test_a_message_with_any_field_changed_is_read_or_refused(message: Any, data: st.DataObject) -> None:
    header = message.frame().header
    places = [(header, name) for name in header]
    places += [
        (part, name) for value in header.values() if isinstance(value, dict) for part in [value] for name in value
    ]
    places += [(cell, name) for cell in header.get("cells", ()) for name in cell]
    part, name = data.draw(st.sampled_from(places))
    part[name] = data.draw(ODD)
    with contextlib.suppress(FrameError):
        assert messages.from_agent(Frame(header)).kind == header["kind"]


def test_a_sentence_of_an_agent_is_one_line_without_escapes() -> None:
    said = messages.from_agent(Frame({"kind": "said", "line": "one\ntwo\x1b[31m\x07"}))
    assert isinstance(said, messages.Said)
    assert said.line == "one⏎two␇"
