"""The weak ones among many devices of one model: how often they are found, and how often a healthy one is called weak."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.catalog.images import PROJECT
from runner.verify.outliers import (
    FALSE_ALARM,
    FEWEST,
    MUST_BE_NAMED,
    NAMED,
    PRIOR_SPREAD,
    fleet_of,
    named_from,
    score_limit,
)
from tests.fixtures.regimes import healthy_devices

LONG = os.environ.get("DLBENCH_SIMULATIONS") == "all"

FLEETS_OF_GROUPS = 2000 if LONG else 200

# How much healthy devices of one model differ in a run's median: 1 % is assumed, and said.
SCATTER = PRIOR_SPREAD


def fleet(
    random: np.random.Generator,
    size: int,
    slow: dict[int, float] | None = None,
    tails: str = "normal",
    spread: float = SCATTER,
) -> dict[str, float]:
    logs = healthy_devices(random, size, tails, spread)
    for at, ratio in (slow or {}).items():
        logs[at] += math.log(ratio)
    return {f"GPU-{at}": 0.01 * math.exp(log) for at, log in enumerate(logs)}


def named(size: int, ratio: float, fleets: int, comparisons: int = 1, spread: float = SCATTER) -> float:
    """The share of fleets in which the one slow device is named."""
    random = np.random.default_rng([size, round(1000 * ratio)])
    found = (fleet_of(fleet(random, size, {0: ratio}, spread=spread), comparisons) for _ in range(fleets))
    return sum("GPU-0" in [slow.device for slow in one.slow] for one in found) / fleets


def alarms(size: int, tails: str, fleets: int, spread: float = SCATTER) -> float:
    """The share of healthy fleets in which a device is called slow."""
    random = np.random.default_rng(size)
    return sum(bool(fleet_of(fleet(random, size, tails=tails, spread=spread)).slow) for _ in range(fleets)) / fleets


def test_of_64_gpus_two_that_are_8_percent_slow_are_found_and_no_other_in_95_of_100_fleets() -> None:
    random = np.random.default_rng(11)
    right = 0
    for _ in range(1000):
        found = fleet_of(fleet(random, 64, {5: 1.08, 40: 1.08}))
        right += {outlier.device for outlier in found.slow} == {"GPU-5", "GPU-40"}
    assert right >= 950


@pytest.mark.parametrize("comparisons", [1, 2, 10])
@pytest.mark.parametrize("size", [4, 8])
def test_one_gpu_of_a_few_that_is_10_percent_slow_is_named_in_95_of_100_fleets(size: int, comparisons: int) -> None:
    assert named(size, 1.10, 1000, comparisons) >= 0.95


@pytest.mark.parametrize("size", [FEWEST, 8, 16, 64])
def test_the_stated_rate_of_false_alarms_holds_in_healthy_fleets(size: int) -> None:
    # One in a hundred is stated. Three standard errors of 2000 fleets are 0.7 in a hundred.
    assert alarms(size, "normal", 2000) <= FALSE_ALARM + 0.007


@pytest.mark.parametrize("size", [4, 8, 16, 64])
def test_two_groups_are_seen_where_half_of_the_gpus_are_10_percent_slow_and_hardly_ever_among_healthy_ones(
    size: int,
) -> None:
    random = np.random.default_rng(size)
    half = dict.fromkeys(range(size // 2), 1.10)
    slow, healthy = ([fleet_of(fleet(random, size, ratios)) for _ in range(FLEETS_OF_GROUPS)] for ratios in (half, {}))
    names = {f"GPU-{at}" for at in half}
    assert sum(bool(one.groups) and set(one.groups[1]) == names for one in slow) >= 0.98 * FLEETS_OF_GROUPS
    assert not any(one.slow for one in slow)
    assert all(one.why_not for one in slow if one.groups)
    assert sum(bool(one.groups) for one in healthy) <= 0.01 * FLEETS_OF_GROUPS


@pytest.mark.parametrize("spread", [0.02, 0.03])
def test_gpus_that_differ_without_groups_are_rarely_called_two_groups(spread: float) -> None:
    random = np.random.default_rng(3)
    found = [fleet_of(fleet(random, 5, spread=spread)) for _ in range(FLEETS_OF_GROUPS)]
    assert sum(bool(one.groups) for one in found) <= (0.05 if spread == 0.02 else 0.14) * FLEETS_OF_GROUPS


@pytest.mark.parametrize("size", [4, 8])
def test_five_in_a_hundred_healthy_fleets_give_a_false_alarm_where_the_tails_are_those_of_t5(size: int) -> None:
    assert alarms(size, "t5", 1000) <= 0.05


@pytest.mark.parametrize("size", [4, 8, 64])
def test_the_limit_is_that_of_the_share_of_each_comparison(size: int) -> None:
    """The limit without the smallest gap: a draw of another seed exceeds it as often as is said."""
    random = np.random.default_rng(5)
    exceeded = 0
    for _ in range(4000):
        found = fleet_of(fleet(random, size))
        middle = found.slowest
        exceeded += math.log(middle) / found.spread > score_limit(size, 1)
    # Three standard errors of 4000 fleets are 0.5 in a hundred.
    assert abs(exceeded / 4000 - FALSE_ALARM) <= 0.005


def test_more_comparisons_ask_for_more() -> None:
    assert score_limit(8, 1) < score_limit(8, 2) < score_limit(8, 20)


@pytest.mark.parametrize("size", [4, 8, 64])
@pytest.mark.parametrize("spread", [0.005, 0.01])
def test_what_would_have_been_named_is_named_in_95_of_100(size: int, spread: float) -> None:
    least = named_from(size, spread, 2)
    # Three standard errors of 1500 fleets are 1.7 in a hundred; so many more lie between two tenths of a percent.
    assert abs(named(size, 1 + least, 1500, 2, spread) - NAMED) <= 0.03


def test_a_fleet_is_not_judged_where_a_gpu_that_is_10_percent_slow_would_not_be_named() -> None:
    scattered = fleet_of({f"GPU-{at}": 1 + 0.02 * at for at in range(5)})
    assert scattered.slow == ()
    assert scattered.named_from is not None
    assert scattered.named_from > MUST_BE_NAMED
    assert "differ too much" in scattered.why_not
    even = fleet_of({f"GPU-{at}": 1 + 0.001 * at for at in range(5)})
    assert even.named_from is not None
    assert even.named_from <= MUST_BE_NAMED
    assert even.why_not == ""


def test_the_range_is_that_of_the_slowest_and_the_fastest() -> None:
    found = fleet_of({"a": 0.98, "b": 0.99, "c": 1.0, "d": 1.01, "e": 1.03})
    assert (found.fastest, found.slowest, found.step_seconds) == pytest.approx((0.98, 1.03, 1.0))


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
    assert "9.00 times as long as the fastest" in found.why_not
    assert fleet_of({}).why_not


@given(st.lists(st.floats(1e-19, 1e19), min_size=1, max_size=9))
def test_any_times_give_an_answer(times: list[float]) -> None:
    found = fleet_of({f"GPU-{at}": seconds for at, seconds in enumerate(times)})
    assert found.slow or found.why_not or (found.named_from or 1) <= MUST_BE_NAMED
    assert all(math.isfinite(value) for value in (found.step_seconds, found.fastest, found.slowest, found.spread))


@given(st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_unit_and_order_do_not_matter(seed: int, unit: float) -> None:
    times = fleet(np.random.default_rng(seed), 16, {2: 1.15})
    turned = dict(reversed([(name, unit * seconds) for name, seconds in times.items()]))
    assert [one.device for one in fleet_of(times).slow] == [one.device for one in fleet_of(turned).slow]


def test_a_small_fleet_shows_less_than_a_large_one() -> None:
    assert named_from(4, SCATTER) > named_from(8, SCATTER) > named_from(64, SCATTER)
    assert score_limit(64) > 3


# --- the table of docs/verify.md ------------------------------------------------------------------------------------------------


def row(size: int, fleets: int = 4000) -> str:
    """The row of docs/verify.md of a fleet's size, in percent of the simulated fleets."""
    shares = [named(size, ratio, fleets) for ratio in (1.07, 1.10, 1.20)]
    shares += [alarms(size, "normal", fleets, spread) for spread in (0.01, 0.02, 0.03)]
    shares += [alarms(size, tails, fleets) for tails in ("t5", "t3", "skewed", "quarter")]
    return f"| {size} | " + " | ".join(f"{100 * share:.0f}" for share in shares) + " |"


@pytest.mark.parametrize("size", [4, 8, 64])
def test_the_documentation_says_what_the_simulation_gives(size: int) -> None:
    if not LONG:
        pytest.skip("40 000 fleets of each size take half a minute; DLBENCH_SIMULATIONS=all simulates them")
    assert row(size) in (PROJECT / "docs" / "verify.md").read_text()
