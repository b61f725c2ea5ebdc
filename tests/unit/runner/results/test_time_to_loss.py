"""The time to a loss of one seed and the median over seeds, on tapes whose answer was computed by hand."""

from __future__ import annotations

import math

import pytest

from runner.results.rank.time_to_loss import FEWEST_SEEDS, MedianTime, SeedTime, median_time, time_of
from runner.results.statistics import ALPHA, fewest_windows

SECONDS = (0.0, 10.0, 25.0, 30.0, 45.0)
# Losses at these times, and the end at a level of 2.
TAPES = {
    "falls": ((9.0, 3.0, 1.9, 1.5, 1.2), SeedTime(1, "reached", 25.0, 15.0, evaluation=2)),
    "touches and rises, then stays": ((9.0, 1.9, 2.5, 1.9, 1.8), SeedTime(1, "reached", 30.0, 5.0, evaluation=3)),
    "at the last one only": ((9.0, 3.0, 2.5, 2.1, 1.9), SeedTime(1, "reached", 45.0, 15.0, last=True, evaluation=4)),
    "ends above": ((9.0, 1.9, 1.8, 1.9, 2.1), SeedTime(1, "touched", 45.0)),
    "the level itself is not below": ((9.0, 3.0, 2.0, 2.0, 2.0), SeedTime(1, "above", 45.0)),
    "below at once": ((1.9, 1.8, 1.7, 1.6, 1.5), SeedTime(1, "below", 0.0)),
    "begins below and rises before it stays": (
        (1.9, 2.1, 1.7, 1.6, 1.5),
        SeedTime(1, "reached", 25.0, 15.0, evaluation=2),
    ),
    "not finite in between": ((9.0, 1.9, math.nan, 1.9, 1.8), SeedTime(1, "reached", 30.0, 5.0, evaluation=3)),
    "not finite at the end": ((9.0, 1.9, 1.8, 1.7, math.nan), SeedTime(1, "touched", 45.0)),
}


@pytest.mark.parametrize("name", TAPES)
def test_the_time_is_that_of_the_first_evaluation_from_which_the_loss_stays_below(name: str) -> None:
    losses, expected = TAPES[name]
    assert time_of(1, SECONDS, losses, 2.0) == expected


def test_without_an_evaluation_there_is_no_time() -> None:
    assert time_of(1, (), (), 2.0) is None


@pytest.mark.parametrize("seconds", [(0.0,) * 5, (0.0, 10.0, 10.0, 30.0, 45.0), (0.0, 10.0, 5.0, 30.0, 45.0)])
def test_a_clock_that_stands_still_or_goes_back_tells_no_time(seconds: tuple[float, ...]) -> None:
    """An image may print any seconds. A time of 0 has no logarithm, and a ratio to it is none."""
    assert time_of(1, seconds, (9.0, 1.9, 1.8, 1.7, 1.6), 2.0) is None


def reached(*seconds: float) -> list[SeedTime]:
    return [SeedTime(seed, "reached", time, 1.0) for seed, time in enumerate(seconds, start=1)]


def censored(*seconds: float) -> list[SeedTime]:
    return [SeedTime(seed, "above", time) for seed, time in enumerate(seconds, start=100)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (reached(3, 1, 2), MedianTime(2, None, None)),
        (reached(4, 1, 3, 2), MedianTime(2.5, None, None)),
        # Three of five got there before the others' training ended: the third is the median, whenever the others get there.
        ([*reached(1, 2, 3), *censored(9, 9)], MedianTime(3, None, None)),
        # The training of one ended before the third: had it gone on, it might have been the third.
        ([*reached(1, 2, 3), *censored(2.5, 9)], MedianTime(None, None, None)),
        ([*reached(1, 2), *censored(9, 9, 9)], MedianTime(None, None, None)),
        ([*reached(1, 2), *censored(9, 9)], MedianTime(None, None, None)),
        # A failed repeat may have got there at any time.
        ([*reached(1, 2, 3, 4), SeedTime(5, "failed", 0.0)], MedianTime(None, None, None)),
        # Of six seeds the interval is their range: the median is outside it with a chance of 2/64.
        (reached(1, 2, 3, 4, 5, 6), MedianTime(3.5, 1, 6)),
        ([*reached(1, 2, 3, 4, 5), *censored(9)], MedianTime(3.5, 1, None)),
        # Of nine the second and the second last: 2 (1 + 9) / 512.
        (reached(*range(1, 10)), MedianTime(5, 2, 8)),
        ([], MedianTime(None, None, None)),
    ],
)
def test_a_median_is_given_where_the_seeds_that_did_not_get_there_cannot_change_it(
    times: list[SeedTime], expected: MedianTime
) -> None:
    assert median_time(times, ALPHA) == expected


def test_the_fewest_seeds_of_an_interval_are_the_fewest_windows_of_one() -> None:
    assert fewest_windows() == FEWEST_SEEDS
