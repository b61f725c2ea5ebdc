"""What a cell says of its windows is held against what the host saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import timing
from runner.results.plausible.windows import (
    implausible,
    noise,
    operations_implausible,
    out_of_order,
    wrong_count,
    wrong_end,
    wrong_length,
)

RECORDED = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))


def windows(path: Path) -> tuple[list[dict[str, Any]], float]:
    """The windows of a recorded cell, as the store has them, and how long it lived."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    samples = [event | {"begin_seconds": event["begin"]} for event in events if event["event"] == "sample"]
    return samples, events[-1]["t"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_real_cells_measured_is_plausible(path: Path) -> None:
    samples, wall = windows(path)
    assert implausible(samples, 64, wall) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # Ten times as many items as were trained with.
        ({"items": 641}, "has 641 items, and"),
        # On top of the window before it.
        ({"begin_seconds": 0.0}, "before the one before it ended at"),
        # Longer than the process lived.
        ({"seconds": 1e4}, "before the one before it ended at|and its process lived for"),
        ({"steps": 0, "items": 0}, "has 0 steps in"),
        ({"seconds": 0.0}, "steps in 0 s"),
    ],
)
def test_a_window_that_cannot_be_is_named(change: dict[str, float], expected: str) -> None:
    samples, wall = windows(RECORDED[0])
    samples[7] |= change
    with pytest.raises(AssertionError, match=expected):
        assert (why := implausible(samples, 64, wall)) is None, why


def test_many_short_windows_on_top_of_one_another_are_seen() -> None:
    window = {"begin_seconds": 1.0, "seconds": 0.0099, "steps": 3, "items": 192}
    samples = [window | {"index": at} for at in range(1000)]
    assert "lasted 9.900 s together" in str(implausible(samples, 64, 1.02))


def test_a_cell_that_says_it_took_longer_than_its_process_lived_is_named() -> None:
    samples, _ = windows(RECORDED[0])
    assert "its process lived for 0.200 s" in str(implausible(samples, 64, 0.2))
    assert implausible([], 64, 0.2) is None


@pytest.mark.parametrize(
    ("short", "task", "preset", "epochs", "expected"),
    [
        (True, "train", "quick", None, None),
        (False, "train", "full", 10, None),
        (False, "operators", "standard", None, None),
        (True, "operators", "quick", None, None),
        (None, "train", "quick", None, None),
        (False, "train", "standard", None, "as long as the specification's, and preset standard is not"),
        (True, "infer", "full", 1, "shorter than the specification's, and preset full is not"),
    ],
)
def test_the_host_knows_which_runs_are_short(
    short: bool | None, task: str, preset: str, epochs: int | None, expected: str | None
) -> None:
    why = wrong_length(short, task, preset, epochs)
    assert (why is None) == (expected is None)
    assert str(why).endswith(expected or "None")


QUICK = {"epochs": None, "seconds": 10, "windows": 30, "noise": 0.01}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_stages_and_the_end_of_real_cells_are_as_the_host_computes_them(path: Path) -> None:
    (end,) = [event for line in path.read_text().splitlines() if (event := json.loads(line))["event"] == "end"]
    samples, _ = windows(path)
    assert out_of_order(samples) is None
    assert wrong_end(samples, end["stop"], QUICK) is None
    assert noise(samples) == pytest.approx(end["noise"])


@pytest.mark.parametrize("stage", ["first", "warm-up"])
def test_a_slow_window_cannot_be_called_warm_up_after_the_measured_ones_began(stage: str) -> None:
    samples, _ = windows(RECORDED[0])
    samples[-3]["stage"] = stage
    assert f"is of the stage {stage}, and the one before it is of the stage steady" in str(out_of_order(samples))


def steady(count: int, spread: float = 0.0) -> list[dict[str, Any]]:
    window = {"stage": "steady", "steps": 2}
    return [window | {"begin_seconds": 0.2 * at, "seconds": 0.1 + spread * (at % 7)} for at in range(count)]


@pytest.mark.parametrize("count", [5, 6, 7, 30, 101])
def test_the_noise_is_that_of_the_bench(count: int) -> None:
    samples = steady(count, 0.01)
    expected = timing.noise([sample["seconds"] / sample["steps"] for sample in samples])
    assert noise(samples) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("samples", "stop", "preset", "expected"),
    [
        (steady(30), "noise", QUICK, None),
        (steady(51), "time", QUICK, None),
        (
            steady(30),
            "time",
            QUICK,
            "it reports an end by time, after windows of 5.9 s, and its preset ends after 10 s",
        ),
        (
            steady(70),
            "time",
            QUICK,
            "it began a window 13.8 s after its first steady one, and its preset ends after 10 s",
        ),
        (
            steady(70),
            "noise",
            QUICK,
            "it began a window 13.8 s after its first steady one, and its preset ends after 10 s",
        ),
        (steady(3), "count", {"epochs": 3}, None),
        ([], "time", QUICK, None),
        (steady(3), "noise", QUICK, "it reports an end by noise, after 3 windows of an unknown noise, and 30 windows"),
        (steady(30, 0.05), "noise", QUICK, "and 30 windows and a noise of 0.01 are needed"),
        (steady(30), "count", QUICK, "it reports an end by count, and its preset ends by noise or time"),
        (steady(30), "time", {"epochs": 3}, "it reports an end by time, and its preset ends by count"),
    ],
)
def test_a_cell_ends_as_its_preset_says(
    samples: list[dict[str, Any]], stop: str, preset: dict[str, Any], expected: str | None
) -> None:
    assert str(expected) in str(wrong_end(samples, stop, preset))


def test_a_whole_run_has_the_steps_of_its_epochs() -> None:
    samples = [{"stage": "first", "steps": 1}, {"stage": "warm-up", "steps": 9}, *steady(45)]
    assert wrong_count(samples, 5, 20, ("first", "warm-up", "steady")) is None
    assert wrong_count(samples, None, 20, ("steady",)) is None
    assert wrong_count([], 5, 20, ("steady",)) is None
    why = wrong_count(samples, 5, 20, ("steady",))
    assert why == "it reports an end by count, after 90 steps, and 5 epochs of 20 steps are 100"


def points() -> list[dict[str, Any]]:
    """Two points of six windows each, one after the other."""
    window = {"operation": "add", "direction": "forward", "seconds": 0.01}
    return [window | {"size": str(at // 6), "begin_seconds": 3.0 + 0.0101 * at} for at in range(12)]


@pytest.mark.parametrize(
    ("place", "change", "expected"),
    [
        (7, {}, None),
        # In turns, no window would follow one of its own kind, and none would be judged by its arrival.
        (7, {"size": "0"}, "its windows of add forward 0 have others between them"),
        (7, {"begin_seconds": 0.0}, "a window of add forward 1 begins at 0.000 s, before the one before it ended"),
        (11, {"begin_seconds": 1e6}, "and its process lived for 9.000 s"),
    ],
)
def test_single_operations_are_measured_one_after_the_other(
    place: int, change: dict[str, Any], expected: str | None
) -> None:
    rows = points()
    rows[place] |= change
    assert str(expected) in str(operations_implausible(rows, 9.0))


def test_many_short_operations_on_top_of_one_another_are_seen() -> None:
    rows = [row | {"begin_seconds": 0.0, "seconds": 0.0099} for row in points()]
    assert "lasted 0.119 s together" in str(operations_implausible(rows, 9.0))
