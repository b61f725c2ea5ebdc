"""Whether a level held, and what an interval says where it did not: against simulated series whose truth is known."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from runner.results.statistics import Array, Estimate, p_value, ratio_estimate
from runner.results.steadiness import Shift, level_shift, slowdown, spanning, widened
from tests.fixtures.regimes import Regime, noise, run

RECORDED = Path(__file__).parents[2] / "recorded"


def with_levels(above: list[Array], below: list[Array]) -> Estimate:
    """The ratio of two measurements of one cell, with the levels of each side's shifts, as reports compare them."""
    ratio = ratio_estimate(above, below, alike=True)
    assert ratio is not None
    levels = []
    for side in (above, below):
        shifts = [shift for shift in map(level_shift, side) if shift is not None]
        medians = [float(np.median(np.concatenate(side)))]
        levels.append(medians + [level for shift in shifts for level in (shift.before, shift.after)])
    return spanning(ratio, *levels)


def test_of_unsteady_repeats_a_change_of_five_percent_is_found_and_no_change_is_not() -> None:
    # One level that wanders: the windows of a process are alike for a while, as those of the recorded runs are.
    random, regime = np.random.default_rng(19), Regime(process=0.01, windows=0.03, correlation=0.8)
    found = wrong = 0
    for _ in range(60):
        (before,), (same,), (slower,) = (run(random, regime, [level], 5) for level in (1.0, 1.0, 1.05))
        p, p_same = p_value(with_levels(slower, before)), p_value(with_levels(same, before))
        assert p is not None
        assert p_same is not None
        found, wrong = found + (p < 0.05), wrong + (p_same < 0.05)
    assert found >= 54
    assert wrong <= 8  # 5 % of 60 and three standard deviations


@pytest.mark.parametrize(("repeats", "wide"), [(1, True), (2, False), (9, False)])
def test_a_shift_widens_an_interval_of_one_repeat_only(repeats: int, wide: bool) -> None:
    estimate = Estimate(1.0, 0.99, 1.01, 40, repeats, "any")
    assert widened(estimate, [Shift(20, 1.0, 1.2, 9.0)]).high == (1.2 if wide else 1.01)
    assert spanning(estimate, [1.0, 1.2], [1.0]).high == (1.2 if wide else 1.01)


def flags(random: np.random.Generator, trials: int, windows: int, deviation: float, correlation: float) -> float:
    """The share of stationary series in which a shift is seen."""
    series = np.exp(deviation * noise(random, (trials, windows), correlation))
    return sum(level_shift(each) is not None for each in series) / trials


@pytest.mark.parametrize("windows", [30, 76])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_of_stationary_series_about_two_in_a_hundred_are_called_unsteady(windows: int, correlation: float) -> None:
    assert flags(np.random.default_rng(windows), 300, windows, 0.05, correlation) <= 0.04


@pytest.mark.skipif(os.environ.get("DLBENCH_SIMULATIONS") != "all", reason="minutes: DLBENCH_SIMULATIONS=all")
@pytest.mark.parametrize("windows", [15, 20, 30, 45, 60, 76, 100, 300])
def test_stationary_series_of_every_length_and_correlation_are_called_steady(windows: int) -> None:
    random = np.random.default_rng(windows)
    for correlation in (0.0, 0.3, 0.5, 0.7, 0.8):
        for deviation in (0.02, 0.1):
            assert flags(random, 1500, windows, deviation, correlation) <= 0.03


def shifted(random: np.random.Generator, correlation: float, begin: int, end: int, ratio: float, n: int) -> Array:
    """A series with windows of 1 % noise, of which those from `begin` to `end` take `ratio` times as long."""
    series = np.exp(0.01 * noise(random, (n,), correlation))
    series[begin:end] *= ratio
    return series


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_a_midway_change_of_five_percent_is_found_in_ordinary_noise(correlation: float) -> None:
    random = np.random.default_rng(76)
    found = [level_shift(shifted(random, correlation, 40, 76, 1.05, 76)) for _ in range(100)]
    seen = [shift for shift in found if shift is not None]
    assert len(seen) >= 90
    assert np.median([abs(shift.index - 40) for shift in seen]) <= 1
    assert sum(shift.until is None for shift in seen) >= 0.9 * len(seen)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_a_level_that_came_back_is_found_with_its_end(correlation: float) -> None:
    random = np.random.default_rng(20)
    for _ in range(50):
        shift = level_shift(shifted(random, correlation, 40, 60, 1.3, 100))
        assert shift is not None
        assert (shift.index, shift.until) == (40, 60)
        assert 1.2 < shift.ratio < 1.4


@pytest.mark.parametrize(
    ("recording", "place"),
    [
        # Half of its windows take 15 % longer, to the end.
        ("torch-2.13.0-cpu.gru-imdb", (49, None)),
        # Eight windows in a row take 65 % longer; twelve take 30 % less.
        ("jax-0.10.2-cpu.gru-imdb", (14, 22)),
        ("tensorflow-2.21.0-cpu.gru-imdb", (34, 45)),
        # Short disturbances that come again and again are noise whose neighbours are alike.
        ("torch-2.13.0-cpu.cnn-cifar10", None),
        ("jax-0.10.2-cpu.cnn-cifar10", None),
        ("tensorflow-2.21.0-cpu.cnn-cifar10", None),
    ],
)
def test_recorded_runs_shift_where_one_can_see_it(recording: str, place: tuple[int, int | None] | None) -> None:
    events = map(json.loads, (RECORDED / f"{recording}.jsonl").read_text().splitlines())
    windows = [each for each in events if each["event"] == "sample" and each["stage"] == "steady"]
    shift = level_shift([window["seconds"] / window["steps"] for window in windows])
    assert (None if shift is None else (shift.index, shift.until)) == place


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [([], 1.0), ([1.2], 1.2), ([None, 1.2, 1.3], 1.2), ([None, None, 1.5], 1.0), ([0.8, 0.9], 1.0)],
)
def test_a_slowdown_is_what_the_middle_repeat_had(ratios: list[float | None], expected: float) -> None:
    assert slowdown([None if ratio is None else Shift(20, 1.0, ratio, 9.0) for ratio in ratios]) == expected
    assert slowdown([Shift(20, 1.0, 1.5, 9.0, until=30)]) == 1.0
