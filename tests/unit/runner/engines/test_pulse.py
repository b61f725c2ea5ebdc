"""When an engine or the runner stood still is known."""

from __future__ import annotations

import threading
import time

import pytest

from runner.engines import probe
from runner.errors import EngineError
from tests.fixtures.waiting import wait_for


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_LATE_SECONDS", 0.3)


def test_an_engine_that_answers_never_stood_still() -> None:
    asked: list[float] = []
    beats = probe.Pulse(lambda: asked.append(time.monotonic()), 0.02)
    wait_for(lambda: len(asked) > 3)
    assert beats.end() == []


def test_an_engine_that_answers_late_stood_still_since_its_last_answer() -> None:
    asked: list[float] = []

    def late() -> None:
        asked.append(time.monotonic())
        if len(asked) == 2:
            time.sleep(0.5)

    beats = probe.Pulse(late, 0.02)
    wait_for(lambda: len(asked) > 3)
    ((begin, end),) = beats.end()
    assert asked[0] <= begin <= asked[1]
    assert end >= asked[1] + 0.5


def test_an_engine_that_has_not_answered_yet_stands_still_until_now() -> None:
    asked, never = threading.Event(), threading.Event()

    def hangs() -> None:
        asked.set()
        never.wait()

    beats = probe.Pulse(hangs, 0.02)
    asked.wait()
    time.sleep(0.4)
    ((begin, end),) = beats.end()
    never.set()
    assert end - begin > 0.4
    assert end <= time.monotonic()


def test_an_engine_that_is_gone_stood_still() -> None:
    asked: list[float] = []

    def gone() -> None:
        asked.append(time.monotonic())
        if len(asked) == 1:
            raise EngineError("no container engine answers")

    beats = probe.Pulse(gone, 0.02)
    wait_for(lambda: len(asked) > 1)
    assert len(beats.end()) == 1
