"""Whether the level of a series of runs changed: at one step, or along a line. And how sure that is.

A value of the series is the mean log step time of one run. Runs differ by more than their repeats show, so how much they
differ is taken from the runs themselves. Neighbouring runs may be alike: a machine that is busy this week was busy
yesterday. Pure functions of numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from runner.results.statistics import ALPHA, FARTHEST, LEVEL, SEED, Array, Estimate
from runner.results.student import student_quantile, student_tail

FEWEST_RUNS = 4  # two of them say how much runs differ after a level before the step and one after it were taken
SMALLEST_ERROR = 1e-5  # of a logarithm: runs that agree exactly have a coarse clock, or were copied
DRAWS = 40_000  # series without a change
NEAREST = 2_000  # of these, those whose neighbours are as alike as the measured ones
# A longer limit than this of the simulated ones is known too badly: Student's distribution goes on from here.
KNOWN = 0.99
# So many times as far as the noise reaches a daily cycle, at least and at most: drawn on a logarithmic scale.
CYCLE = (0.5, 30.0)
# Of runs that lie in fewer hours a line is not told from the daily cycle of a machine.
DAY = 24.0
_AT_ONCE = 2_000_000  # numbers in memory, while series are drawn


@dataclass(frozen=True)
class Change:
    """The most likely change of a series, whether or not it is sure: a step, or a drift where a line fits better."""

    kind: Literal["step", "drift"]
    index: int  # runs before a step; of a drift 1: it began after the first run
    ratio: Estimate  # of the level after a step to that before it; of a drift the line's last value to its first
    p: float  # the chance of a change at least so clear, anywhere in a series without one


def change(levels: Array, hours: Sequence[float] = ()) -> Change:
    """The step of a series of at least FEWEST_RUNS log levels, or its drift: which of both leaves the smaller residuals.

    A step is at the split with the largest Student's t of its two means; a drift is a straight line, with Student's t of its slope.
    How large the larger t is without a change is simulated, since the place was chosen and neighbours may be alike: in
    first-order autoregressions of any coefficient, of which those count whose residuals are correlated as the measured ones are.
    `hours`: when each run began, since any moment. Half of the simulated series then have a daily cycle, too, and a drift takes
    more than a day. The simulated 95 % limit makes the interval. Where no change is told, the interval holds each change that
    Student's t at any place does not exclude.
    """
    count = len(levels)
    hours = hours if len(hours) == count else ()
    changes, errors, places, correlations = _best(levels[None, :])
    values, best = changes[0], int(places[0])
    errors = np.maximum(errors[0], SMALLEST_ERROR)
    score = abs(float(values[best])) / float(errors[best])
    without = _alike(count, tuple(hour % DAY for hour in hours), float(correlations[0]))
    p = float(1 + np.sum(without >= score)) / (1 + len(without))
    known = float(np.quantile(without, KNOWN))
    if score > known:
        p = student_tail(student_quantile((1 + KNOWN) / 2, count - 2) * score / known, count - 2)
    drift = best == count - 1
    if drift and hours and max(hours) - min(hours) < DAY:
        p = 1.0
    value, error = float(values[best]), float(errors[best])
    reach = float(np.quantile(without, LEVEL)) * error
    low, high = value - reach, value + reach
    if p >= ALPHA:
        reaches = student_quantile((1 + LEVEL) / 2, count - 2) * errors
        low, high = min(low, float(np.min(values - reaches))), max(high, float(np.max(values + reaches)))
    ratio = _estimate(
        value, low, high, error, count, "largest t of all splits of the runs and of a line, simulated limit"
    )
    return Change("drift" if drift else "step", 1 if drift else best + 1, ratio, p)


def difference(before: Array, after: Array) -> Estimate:
    """The ratio of the level of some runs to that of some earlier ones, by Student's t: at least FEWEST_RUNS runs in all."""
    freedom = len(before) + len(after) - 2
    scatter = float(np.sum((before - before.mean()) ** 2) + np.sum((after - after.mean()) ** 2))
    error = max(SMALLEST_ERROR, math.sqrt(scatter / freedom * (1 / len(before) + 1 / len(after))))
    value, reach = float(after.mean() - before.mean()), student_quantile((1 + LEVEL) / 2, freedom) * error
    return _estimate(value, value - reach, value + reach, error, freedom + 2, "means of the runs, Student's t")


def _estimate(value: float, low: float, high: float, error: float, runs: int, method: str) -> Estimate:
    middle, least, most = (math.exp(max(-FARTHEST, min(FARTHEST, end))) for end in (value, low, high))
    return Estimate(middle, least, most, runs, runs, method, "", error, runs - 2, 0.0)


@functools.cache
def _shapes(count: int) -> Array:
    """Of each change that is looked for, how far each run is in it, around a mean of 0: a row for each split, and the line last."""
    at = np.arange(count)
    shapes = np.array([*(at >= first for first in range(1, count)), at / (count - 1)], dtype=np.float64)
    return np.asarray(shapes - shapes.mean(axis=1, keepdims=True))


def _best(series: Array) -> tuple[Array, Array, npt.NDArray[np.int64], Array]:
    """Of each series (a row): the size of each change and its standard error by Student's t, the place of the clearest one, and the
    correlation of neighbouring residuals around that."""
    shapes, count = _shapes(series.shape[1]), series.shape[1]
    squares = np.sum(shapes**2, axis=1)
    centred = series - series.mean(axis=1, keepdims=True)
    changes = centred @ shapes.T / squares
    inside = np.maximum(0.0, np.sum(centred**2, axis=1, keepdims=True) - changes**2 * squares)
    errors = np.sqrt(inside / (count - 2) / squares)
    places = np.argmax(np.abs(changes) / np.maximum(errors, SMALLEST_ERROR), axis=1)
    left = centred - np.take_along_axis(changes, places[:, None], axis=1) * shapes[places]
    total = np.maximum(np.sum(left**2, axis=1), count * SMALLEST_ERROR**2)
    return changes, errors, places, np.sum(left[:, 1:] * left[:, :-1], axis=1) / total


def _alike(count: int, hours: tuple[float, ...], correlation: float) -> Array:
    """The largest |t| of the simulated series without a change whose residuals are correlated most nearly as these."""
    scores, correlations = _without_a_change(count, hours if len(set(hours)) > 1 else ())
    first = int(np.searchsorted(correlations, correlation)) - NEAREST // 2
    first = min(max(0, first), len(scores) - NEAREST)
    return scores[first : first + NEAREST]


@functools.lru_cache(maxsize=32)
def _without_a_change(count: int, hours: tuple[float, ...]) -> tuple[Array, Array]:
    """The largest |t| of simulated series without a change, and the correlation of their residuals, in the order of that.

    Any coefficient from 0 to 1 is as likely as another.
    """
    random, found = np.random.default_rng(SEED), []
    many = max(1, _AT_ONCE // count)
    for first in range(0, DRAWS, many):
        drawn = min(many, DRAWS - first)
        coefficients = random.random(drawn)
        series = random.standard_normal((drawn, count))
        for at in range(1, count):
            series[:, at] *= np.sqrt(1 - coefficients**2)
            series[:, at] += coefficients * series[:, at - 1]
        if hours:
            half = drawn // 2
            heights = np.exp(random.uniform(math.log(CYCLE[0]), math.log(CYCLE[1]), (half, 1)))
            series[:half] += heights * np.sin(2 * np.pi * (random.random((half, 1)) + np.array(hours) / DAY))
        changes, errors, places, correlations = _best(series)
        clearest = np.take_along_axis(np.abs(changes) / errors, places[:, None], axis=1)[:, 0]
        found.append((clearest, correlations))
    scores, correlations = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(correlations)
    return scores[order], correlations[order]
