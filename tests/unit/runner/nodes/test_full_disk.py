"""A node whose disk is full."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from runner.nodes.agent import Agent
from runner.nodes.spool import Spool
from runner.nodes.wire import messages
from runner.nodes.wire.frames import Frame
from tests.fixtures.nodes import ATTEMPT, ended


class Pipe:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: messages.FromAgent, body: bytes = b"") -> None:
        self.sent.append(message)

    def send_frame(self, frame: Frame) -> None:
        self.sent.append(frame)


def test_a_repeat_that_the_spool_cannot_hold_is_sent_and_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    pipe = Pipe()
    agent, repeat, spool = Agent(cast(Any, pipe)), ended(tmp_path), Spool("run", "n1", tmp_path)
    agent._held[repeat.job] = ATTEMPT, ()
    agent._spool = spool
    monkeypatch.setattr(spool, "keep", full)
    assert agent._keep(repeat) == ("ok", None)
    said, sent = pipe.sent
    assert isinstance(said, messages.Said)
    assert f"{spool.folder} cannot be written to (No space left on device)" in said.line
    assert isinstance(sent, Frame)
    assert sent.header["attempt"] == ATTEMPT
