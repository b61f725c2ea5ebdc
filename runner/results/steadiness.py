"""The steadiness of a level while it was measured, and the interval of an unsteady one. Pure functions of timings.

No unit is assumed but that timings are positive.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from runner.results.statistics import Array, Estimate, clean, median

# A level lasts at least this long: two or three windows alone are a warm-up cut too early, or outliers.
SHORTEST_SEGMENT = 5
FEWEST_FOR_STEADINESS = 3 * SHORTEST_SEGMENT
# At most 2 % of stationary series of 15 to 100 windows reach it, white or with a correlation of neighbours up to 0.8: simulated,
# as is CORRELATION_LOST (tests/unit/runner/results/test_steadiness.py).
SHIFT_SCORE = 6.3
# Windows around the two levels of the best split are less correlated than the series is: by about this, divided by their number.
CORRELATION_LOST = 10.0
# Of a correlation near 1 a few dozen windows cannot tell whether it is a drift.
MOST_CORRELATION = 0.9
# Smaller shifts are real on a quiet machine, but below what frameworks are compared by.
SMALLEST_SHIFT = 0.02
# A single window counts for at most this many noise widths in the search, so that a few outliers make no level.
CLIP = 8.0
# In the correlation of neighbours an outlier counts for at most so many.
CLIP_OF_CORRELATION = 3.0
# Timings of a coarse clock repeat exactly. A shift below 0.1 % does not matter anyway.
LEAST_NOISE = 1e-3
# The search looks at so many places of a longer series, evenly spaced.
MOST_PLACES = 250


@dataclass(frozen=True)
class Shift:
    """A level that changed midway: from the window at `index` on, windows take `ratio` times as long as before.

    The first level came back at the window `until`; None where it did not.
    """

    index: int
    before: float
    after: float
    score: float
    until: int | None = None

    @property
    def ratio(self) -> float:
        return self.after / self.before


def level_shift(values: Sequence[float] | Array) -> Shift | None:
    """The change of level in a series of positive window times, for good or there and back; null where there is none to see.

    The candidate is the stretch of windows whose mean log differs most from that of the others: circular binary segmentation's
    statistic (Olshen, Venkatraman, Lucito and Wigler, Biostatistics 5, 2004), in which a stretch that ends with the series is one
    change for good. Its score is the difference of the two medians divided by its standard error. That error counts the correlation
    of neighbouring windows as in a first-order autoregression, whose mean scatters sqrt((1 + r) / (1 - r)) times as much as that of
    white noise. It counts when the score is beyond noise and the medians differ by 2 % or more. Fewer than 15 windows cannot tell: null.
    """
    series = clean(values)
    n = len(series)
    if n < FEWEST_FOR_STEADINESS or np.any(series <= 0):
        return None
    logs = np.log(series)
    steps = np.diff(logs)
    # A shift does not inflate the noise between neighbours. Correlation makes it too small: the second search has the noise
    # around the levels of the first.
    noise = max(_width(steps - median(steps)) / math.sqrt(2), LEAST_NOISE)
    for _ in range(2):
        inside = _stretch(np.clip((logs - median(logs)) / noise, -CLIP, CLIP))
        levels = median(logs[inside]), median(logs[~inside])
        residuals = logs - np.where(inside, *levels)
        noise = max(_width(residuals), LEAST_NOISE)
    correlation = _correlation(np.clip(residuals / noise, -CLIP_OF_CORRELATION, CLIP_OF_CORRELATION))
    inflated = (1 + correlation) / (1 - correlation)
    share = float(np.mean(inside))
    score = abs(levels[0] - levels[1]) / noise * math.sqrt(n * share * (1 - share) / inflated)
    if score < SHIFT_SCORE or abs(levels[0] - levels[1]) < math.log(1 + SMALLEST_SHIFT):
        return None
    begin, end = int(np.argmax(inside)), n - int(np.argmax(inside[::-1]))
    within, beside = median(series[inside]), median(series[~inside])
    if begin == 0:
        return Shift(end, within, beside, score)
    return Shift(begin, beside, within, score, end if end < n else None)


def slowdown(shifts: Sequence[Shift | None]) -> float:
    """How many times as long windows took after a change for good, by the median of the repeats; `shifts` holds None for a steady one.

    At least 1. One repeat of three that slowed down says nothing of the others; a level that came back moves no median by much.
    """
    ratios = [1.0 if shift is None or shift.until else max(1.0, shift.ratio) for shift in shifts]
    return float(np.median(ratios)) if ratios else 1.0


def _width(deviations: Array) -> float:
    """The standard deviation of normal values with the median absolute deviation of these."""
    return 1.4826 * median(np.abs(deviations))


def _stretch(scaled: Array) -> npt.NDArray[np.bool_]:
    """Which values lie in the stretch whose mean differs most from that of the others, in standard errors."""
    n = len(scaled)
    begin, end, length = _stretches(n)
    sums = np.concatenate([[0.0], np.cumsum(scaled)])
    scores = np.abs(sums[end] - sums[begin] - length / n * sums[-1]) / np.sqrt(length * (n - length) / n)
    best = int(np.argmax(scores))
    at = np.arange(n)
    return np.asarray((at >= begin[best]) & (at < end[best]))


@functools.lru_cache(maxsize=8)  # most repeats of a run have about the same number of windows
def _stretches(n: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Begin, end and length of each stretch among `n` windows."""
    places = np.unique(np.linspace(0, n, min(n, MOST_PLACES) + 1).round().astype(np.int64))
    begin, end = (grid.ravel() for grid in np.meshgrid(places, places, indexing="ij"))
    length = end - begin
    # The parts before, in and after the stretch are levels too, or empty.
    fits = (length >= SHORTEST_SEGMENT) & (length <= n - SHORTEST_SEGMENT)
    fits &= ((begin == 0) | (begin >= SHORTEST_SEGMENT)) & ((end == n) | (end <= n - SHORTEST_SEGMENT))
    return begin[fits], end[fits], length[fits]


def _correlation(residuals: Array) -> float:
    """The correlation of neighbouring windows around two levels that were fitted to them; 0 or more."""
    total = float(np.sum(residuals**2))
    seen = float(np.sum(residuals[1:] * residuals[:-1])) / total if total else 0.0
    return min(MOST_CORRELATION, max(0.0, seen + CORRELATION_LOST / len(residuals)))


def spanning(ratio: Estimate, above: Sequence[float], below: Sequence[float]) -> Estimate:
    """A ratio whose interval also holds every level that its sides were at, where a side has one repeat.

    `above` are the levels of the numerator and `below` those of the denominator, each with its median. The next run of a
    process that changed its level may have either. With two or more repeats on each side every repeat has its own levels,
    so the error between repeats holds their changes already.
    """
    if ratio.repeats > 1 or ratio.low is None or ratio.high is None:
        return ratio
    low, high = min(ratio.low, min(above) / max(below)), max(ratio.high, max(above) / min(below))
    note = "; ".join(part for part in (ratio.note, "unsteady: the interval spans the levels before and after") if part)
    return replace(ratio, low=low, high=high, note=note)


def widened(estimate: Estimate, shifts: Sequence[Shift]) -> Estimate:
    """An estimate of one repeat whose interval also spans the levels before and after each shift: either may be the one to come.

    With two or more repeats it stays as it is, for the reason that `spanning` gives.
    """
    if estimate.repeats > 1 or not shifts or estimate.low is None or estimate.high is None:
        return estimate
    levels = [level for shift in shifts for level in (shift.before, shift.after)]
    note = "; ".join(part for part in (estimate.note, "unsteady: the interval spans both levels") if part)
    return replace(estimate, low=min(estimate.low, *levels), high=max(estimate.high, *levels), note=note)
