"""Whether a series of runs has one step in it: the place where its level changed, and how sure that is.

A value of the series is the mean log step time of one run. Runs differ by more than their repeats show, so how much they
differ is taken from the runs themselves. Pure functions of numbers.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from runner.results.statistics import ALPHA, FARTHEST, LEVEL, SEED, Array, Estimate
from runner.results.student import student_quantile

FEWEST_RUNS = 4  # two of them say how much runs differ after a level before the step and one after it were taken
DRAWS = 20_000  # the smallest chance that can be told is 1 in so many
SMALLEST_ERROR = 1e-5  # of a logarithm: runs that agree exactly have a coarse clock, or were copied
_AT_ONCE = 2_000_000  # numbers in memory, while series are drawn


@dataclass(frozen=True)
class Step:
    """The most likely step of a series, whether or not it is sure."""

    index: int  # runs before it
    ratio: Estimate  # of the level after it to the level before it
    p: float  # the chance of a step at least so clear, anywhere in a series without one


def step(levels: Array) -> Step:
    """The step of a series of at least FEWEST_RUNS log levels: the split with the largest Student's t of its two means.

    How large that t is without a step is simulated, for normal values: the place was chosen, so Student's own quantile
    would be too small. Its 95 % limit makes the interval. Where no step is told, the interval holds each change that Student's t
    at any place does not exclude.
    """
    count = len(levels)
    changes, errors = (array[0] for array in _splits(levels[None, :]))
    errors = np.maximum(errors, SMALLEST_ERROR)
    scores = np.abs(changes) / errors
    best, without = int(np.argmax(scores)), _largest_without_a_step(count)
    p = float(1 + np.sum(without >= scores[best])) / (1 + len(without))
    value, error = float(changes[best]), float(errors[best])
    reach = float(np.quantile(without, LEVEL)) * error
    low, high = value - reach, value + reach
    if p >= ALPHA:
        reaches = student_quantile((1 + LEVEL) / 2, count - 2) * errors
        low, high = min(low, float(np.min(changes - reaches))), max(high, float(np.max(changes + reaches)))
    ratio = _estimate(value, low, high, error, count, "largest t of all splits of the runs, simulated limit")
    return Step(best + 1, ratio, p)


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


def _splits(series: Array) -> tuple[Array, Array]:
    """Of each series (a row) and each split of it: the change of the mean, and its standard error by Student's t."""
    count = series.shape[1]
    first = np.arange(1, count)
    centred = series - series.mean(axis=1, keepdims=True)
    sums = np.cumsum(centred, axis=1)[:, :-1]
    changes = -sums * count / (first * (count - first))
    between = sums**2 * count / (first * (count - first))
    inside = np.maximum(0.0, np.sum(centred**2, axis=1, keepdims=True) - between)
    return changes, np.sqrt(inside / (count - 2) * (1 / first + 1 / (count - first)))


@functools.cache
def _largest_without_a_step(count: int) -> Array:
    """The largest |t| over all splits, in simulated series without a step."""
    random, found = np.random.default_rng(SEED), []
    many = max(1, _AT_ONCE // count)
    for first in range(0, DRAWS, many):
        changes, errors = _splits(random.standard_normal((min(many, DRAWS - first), count)))
        found.append(np.max(np.abs(changes) / errors, axis=1))
    return np.concatenate(found)
