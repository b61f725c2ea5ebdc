"""The change of a series of runs' level: at one step, or along a line. And how sure that is.

A value of the series is the mean log step time of one run. Runs differ by more than their repeats show, so how much they
differ is taken from the runs themselves. Neighbouring runs may be alike: a machine that is busy this week was busy
yesterday. So a change must be larger than what any of three machines without one shows: runs that do not depend on one another,
runs of which neighbours are alike, and a level that wanders. Pure functions of numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

import numpy as np

from reports.answers import export, sessions
from reports.data.model import MeasuredCell, Tables
from runner.results.on_disk.roles import NamedCell
from runner.results.statistics import ALPHA, FARTHEST, LEVEL, SEED, Array, Estimate
from runner.results.student import student_quantile
from runner.text import visible

# Cells that no longer work: measured by an earlier run, and failed in each run that tried them since.


class BrokenRecord(NamedCell):
    """A cell that fails since the run `b_runs`."""

    b_runs: str
    verdict: Literal["fails since"]
    reason: str


@dataclass(frozen=True)
class Broken:
    """A cell that fails since an earlier run measured it."""

    cell: MeasuredCell  # as the newest run has it
    since: str  # the first run in which it failed

    @property
    def line(self) -> str:
        names = [self.cell.name, self.cell.key.workload, self.cell.key.device, self.cell.key.precision]
        shown = ", ".join(visible(name, 80) for name in names)
        return f"{shown}: tried and failed since {visible(self.since, 80)}: {visible(self.cell.reason, 200)}"

    @property
    def record(self) -> BrokenRecord:
        """The fields of a flat record that it has."""
        return {
            **export.of_cell(self.cell),
            "b_runs": self.since,
            "verdict": "fails since",
            "reason": self.cell.reason,
        }


def broken(tables: Tables) -> tuple[Broken, ...]:
    """Every such cell. A run that did not try a cell says nothing of it."""
    runs: dict[tuple[object, ...], list[MeasuredCell]] = {}
    for cell in sorted(tables.cells, key=lambda cell: tables.order[cell.run_id]):
        if cell.status in ("ok", "failed"):
            runs.setdefault(sessions.same(cell), []).append(cell)
    found = []
    for cells in runs.values():
        failed = list(takewhile(lambda cell: cell.status == "failed" and not cell.ended_well, reversed(cells)))
        if failed and any(cell.comparable for cell in cells):
            found.append(Broken(failed[0], failed[-1].run_id))
    return tuple(found)


FEWEST_RUNS = 4  # two of them say how much runs differ after a level before the step and one after it were taken
LASTING = 3  # runs: a change that lasted fewer is the scatter of runs, or shows in the next ones
SMALLEST_ERROR = 1e-5  # of a logarithm: runs that agree exactly have a coarse clock, or were copied
_ODD = 0.05  # of a logarithm: a run that is less far from the others is not worth a sentence
# How far a run may depend on the one before it: not at all, somewhat, or so far that the level wanders.
CORRELATIONS = (0.0, 0.5, 0.9)
DRAWS = 20_000  # series without a change, of each correlation
# A larger score than this part of the simulated ones has is known too badly: its chance is computed from the power law of the tail.
KNOWN = 0.99
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

    @property
    def level(self) -> float:
        """Of the interval of its ratio: where no change is told it is that of two one-sided tests, each at ALPHA."""
        return LEVEL if self.p < ALPHA else 1 - 2 * ALPHA


def change(levels: Array, hours: Sequence[float] = ()) -> Change:
    """The step of a series of at least FEWEST_RUNS log levels, or its drift: which of all leaves the smallest squares.

    Its score is how many times as large the squares are without a change, once the correlation of neighbours is taken out of them:
    the likelihood ratio of runs that scatter around a change to an autoregression without one. The place was chosen, so how large the
    score becomes without a change is simulated. p is the largest of those of CORRELATIONS, since a few runs do not show
    their own. `hours`: when each run began, since any moment: a drift takes more than a day. The interval holds each size
    without which no change would be left at that place. Where none is told, it holds each change of LASTING runs or more that two
    one-sided tests, each at ALPHA, do not exclude: nobody asks whether one run of ten was another.
    """
    count = len(levels)
    values, left = (rows[0] for rows in _fits(levels[None, :]))
    place = int(np.argmin(left))
    drift = place == count - 1
    p = max(_chance(levels, float(left[place]), correlation) for correlation in CORRELATIONS)
    if drift and len(hours) == count and max(hours) - min(hours) < DAY:
        p = 1.0
    errors = np.sqrt(left / (count - 2) / np.sum(_shapes(count) ** 2, axis=1))
    if p >= ALPHA:
        return _unchanged(values, errors, p)
    ends = [end for one in CORRELATIONS for end in _possible(levels, _shapes(count)[place], float(left[place]), one)]
    method = "least squares of all splits of the runs and of a line, simulated limit"
    ratio = _estimate(float(values[place]), min(ends), max(ends), float(errors[place]), count, method)
    return Change("drift" if drift else "step", 1 if drift else place + 1, ratio, p)


def _unchanged(values: Array, errors: Array, p: float) -> Change:
    """The largest change that lasted, where none is told, with the ends of all that did."""
    count = len(values)
    shortest = min(LASTING, count // 2)
    # The place after the first run is 0, and the line is the last.
    lasted = slice(shortest - 1, count - shortest)
    reaches = student_quantile(1 - ALPHA, count - 2) * errors[lasted]
    # None is told, so none is possible.
    low, high = (
        float(np.min(values[lasted] - reaches, initial=0.0)),
        float(np.max(values[lasted] + reaches, initial=0.0)),
    )
    place = shortest - 1 + int(np.argmax(np.abs(values[lasted])))
    method = f"all splits with {shortest} runs or more on each side, two one-sided tests"
    return Change("step", place + 1, _estimate(float(values[place]), low, high, float(errors[place]), count, method), p)


def odd_one(levels: Array) -> int | None:
    """The run in the middle that lies apart from all others, by more than three times the range of these; None without one.

    The first run may be the last of an older level, and the newest one the first of a new one.
    """
    if len(levels) <= FEWEST_RUNS:
        return None
    at = 1 + int(np.argmax(np.abs(levels - np.median(levels))[1:-1]))
    others = np.delete(levels, at)
    return at if float(np.min(np.abs(others - levels[at]))) > max(_ODD, 3 * float(np.ptp(others))) else None


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


def _fits(series: Array) -> tuple[Array, Array]:
    """Of each series (a row): the size of each change, and the sum of the squares that it leaves."""
    count = series.shape[1]
    squares = np.sum(_shapes(count) ** 2, axis=1)
    centred = series - series.mean(axis=1, keepdims=True)
    changes = centred @ _shapes(count).T / squares
    left = np.sum(centred**2, axis=1, keepdims=True) - changes**2 * squares
    return changes, np.maximum(left, count * SMALLEST_ERROR**2)


def _apart(series: Array, correlation: float) -> Array:
    """Each series less its level, and less what each run has of the one before it."""
    apart = np.array(series, dtype=np.float64)
    apart[:, 1:] -= correlation * series[:, :-1]
    level = np.full(series.shape[1], 1 - correlation)
    level[0] = first = math.sqrt(1 - correlation**2)
    apart[:, 0] *= first
    return np.asarray(apart - np.outer(apart @ level, level) / (level @ level))


def _chance(levels: Array, left: float, correlation: float) -> float:
    """The chance of at least this score in a series without a change.

    The tail is a power law: a score is large where a point of count - 2 dimensions lies near to 0.
    """
    score = float(np.sum(_apart(levels[None, :], correlation) ** 2)) / left
    scores = _without_a_change(len(levels), correlation)
    known = float(np.quantile(scores, KNOWN))
    if score > known:
        return float((1 - KNOWN) * (known / score) ** ((len(levels) - 2) / 2))
    return float(1 + np.sum(scores >= score)) / (1 + len(scores))


def _possible(levels: Array, shape: Array, left: float, correlation: float) -> tuple[float, ...]:
    """The ends of the sizes of one change without which the series would have none, by its score. Empty where there is no such size."""
    series, unit = _apart(np.array([levels, shape]), correlation)
    size, squares = float(series @ unit / (unit @ unit)), float(unit @ unit)
    most = float(np.quantile(_without_a_change(len(levels), correlation), LEVEL)) * left
    room = (most - float(np.sum((series - size * unit) ** 2))) / squares
    return (size - math.sqrt(room), size + math.sqrt(room)) if room >= 0 else ()


@functools.lru_cache(maxsize=128)
def _without_a_change(count: int, correlation: float) -> Array:
    """The scores of simulated series without a change, of this correlation of neighbours."""
    random, scores = np.random.default_rng(SEED), []
    many = max(1, _AT_ONCE // count)
    for first in range(0, DRAWS, many):
        series = random.standard_normal((min(many, DRAWS - first), count))
        series[:, 1:] *= math.sqrt(1 - correlation**2)
        for at in range(1, count):
            series[:, at] += correlation * series[:, at - 1]
        scores.append(np.sum(_apart(series, correlation) ** 2, axis=1) / _fits(series)[1].min(axis=1))
    return np.concatenate(scores)
