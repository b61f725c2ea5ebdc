"""The full load of a device: what it measures, and when."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from bench import load


class Clock:
    """A device whose runs take so long; it is slower from a moment on, as when it is hot."""

    def __init__(self, seconds: float, hot_seconds: float, hot_from: float) -> None:
        self.now, self.seconds, self.hot_seconds, self.hot_from = 1000.0, seconds, hot_seconds, hot_from

    def __call__(self) -> float:
        return self.now

    def run(self) -> None:
        self.now += self.hot_seconds if self.now >= self.hot_from else self.seconds


def test_the_load_is_syntax_of_python_3_6() -> None:
    assert load.__file__
    ast.parse(Path(load.__file__).read_text(), feature_version=(3, 6))


def test_the_rates_are_those_of_the_hot_device() -> None:
    clock = Clock(0.01, 0.02, 1003.0)
    (found,) = load.measure([("product", "FLOP/s", 2.0, lambda: None, clock.run)], lambda: None, 10.0, 0.0, clock)
    assert found["rates"] == pytest.approx([100.0] * len(found["rates"]))
    assert found["begin_unix"] >= 1004.0
    assert 1010.0 <= found["end_unix"] < 1011.0


def test_each_load_begins_at_its_own_moment_whatever_the_process_did_before() -> None:
    clock, prepared = Clock(0.01, 0.01, 0.0), []
    loads = [(name, "FLOP/s", 1.0, lambda name=name: prepared.append((name, clock.now)), clock.run) for name in "ab"]
    load.measure(loads, lambda: None, 5.0, 1020.0, clock)
    assert [name for name, _ in prepared] == ["a", "a", "b"]
    assert [moment for _, moment in prepared] == pytest.approx([1000.0, 1020.0, 1025.0], abs=0.6)


def test_a_slow_device_has_windows_enough_for_a_median() -> None:
    clock = Clock(9.0, 9.0, 0.0)
    (found,) = load.measure([("product", "FLOP/s", 1.0, lambda: None, clock.run)], lambda: None, 1.0, 0.0, clock)
    assert len(found["rates"]) == load.LEAST_WINDOWS


def test_a_clock_that_is_set_meanwhile_changes_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    before = load.unix_now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before <= load.unix_now() < before + 60
