"""A node whose disk is full."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from runner.nodes.node_agent import Agent
from runner.nodes.spool import Spool
from runner.nodes.wire import Ended, FromAgent, Said
from runner.run.dispatch import Job
from tests.fixtures.nodes import ATTEMPT, CELL, parcel_of


class Pipe:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: FromAgent, body: bytes = b"") -> None:
        self.sent.append(message)


def test_a_repeat_that_the_spool_cannot_hold_is_sent_and_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    pipe = Pipe()
    agent, job, spool = Agent(cast(Any, pipe)), Job(CELL, 1), Spool("run", "n1", tmp_path)
    agent._held[job] = ATTEMPT, ()
    agent._spool = spool
    monkeypatch.setattr(spool, "keep", full)
    agent._keep(job, parcel_of(CELL))
    said, sent = pipe.sent
    assert isinstance(said, Said)
    assert f"{spool.folder} cannot be written to (No space left on device)" in said.line
    assert sent == Ended(attempt=ATTEMPT)
