"""The weak ones among many devices of one model: how often they are found, and how often a healthy one is called weak."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.verify.outliers import FALSE_ALARM, FEWEST, fleet_of, score_limit

# How much healthy devices of one model differ in a run's median: 1 % is assumed, and said.
SCATTER = 0.01


def fleet(random: np.random.Generator, size: int, slow: dict[int, float] | None = None) -> dict[str, float]:
    logs = random.normal(0, SCATTER, size)
    for at, ratio in (slow or {}).items():
        logs[at] += math.log(ratio)
    return {f"GPU-{at}": 0.01 * math.exp(log) for at, log in enumerate(logs)}


def test_of_64_gpus_two_that_are_7_percent_slow_are_found_and_no_other_in_95_of_100_fleets() -> None:
    random = np.random.default_rng(11)
    right = 0
    for _ in range(1000):
        found = fleet_of(fleet(random, 64, {5: 1.07, 40: 1.07}))
        right += {outlier.device for outlier in found.slow} == {"GPU-5", "GPU-40"}
    assert right >= 950


@pytest.mark.parametrize("size", [FEWEST, 8, 16, 64])
def test_the_stated_rate_of_false_alarms_holds_in_healthy_fleets(size: int) -> None:
    random = np.random.default_rng(size)
    alarms = sum(bool(fleet_of(fleet(random, size)).slow) for _ in range(2000))
    # one in a hundred is stated; three standard errors of 2000 fleets are 0.7 in a hundred
    assert alarms / 2000 <= FALSE_ALARM + 0.007


def test_one_gpu_in_eight_that_is_a_fifth_slower_is_found() -> None:
    random = np.random.default_rng(2)
    found = [fleet_of(fleet(random, 8, {3: 1.2})) for _ in range(300)]
    assert sum([outlier.device for outlier in one.slow] == ["GPU-3"] for one in found) >= 0.95 * 300


def test_a_fleet_that_is_even_to_a_hundredth_of_a_percent_has_no_weak_one() -> None:
    even = {f"GPU-{at}": 0.01 for at in range(15)}
    assert fleet_of({**even, "GPU-x": 0.010001}).slow == ()
    assert [one.device for one in fleet_of({**even, "GPU-x": 0.011}).slow] == ["GPU-x"]


def test_three_gpus_say_nothing_and_it_is_told() -> None:
    found = fleet_of({"a": 1.0, "b": 1.0, "c": 9.0})
    assert found.slow == ()
    assert "3 devices" in found.why_not
    assert fleet_of({}).why_not


@given(st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_unit_and_order_do_not_matter(seed: int, unit: float) -> None:
    times = fleet(np.random.default_rng(seed), 16, {2: 1.15})
    turned = dict(reversed([(name, unit * seconds) for name, seconds in times.items()]))
    assert [one.device for one in fleet_of(times).slow] == [one.device for one in fleet_of(turned).slow]


def test_a_small_fleet_asks_for_more_than_a_large_one() -> None:
    assert score_limit(4) > score_limit(8) > score_limit(64) > 3
