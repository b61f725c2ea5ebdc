"""What is said about a set of timings: a median, how sure it is, and whether the level held while it was measured.

Pure functions of numbers; no unit is assumed but that timings are positive. Every interval is two-sided and 95 % unless
a level is given. Random draws are seeded, so that a report rendered twice says the same.

Windows of one repeat and repeats of one cell are different things. Windows say how the times scatter inside one
process; only repeats (each a process of its own) say what another run would give. So with two or more repeats the
interval comes from resampling whole repeats, and with one repeat the estimate says that it knows one process only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from runner.results.student import student_quantile, student_tail

Array = npt.NDArray[np.float64]

LEVEL = 0.95
DRAWS = 4000  # the end of a percentile interval is then known to about 0.2 percentage points of coverage
DRAWS_OF_ERROR = 500  # a standard error is then known to 3 %
SEED = 20201
# The largest logarithm of a factor by which an interval reaches: e^600 times any time is still a number.
FARTHEST = 600.0


@dataclass(frozen=True)
class Estimate:
    """A median with its interval; low and high are null where the data carry none, and `note` says why."""

    value: float
    low: float | None
    high: float | None
    windows: int
    repeats: int
    method: str
    note: str = ""
    error: float | None = None  # standard error of the logarithm, from repeats; null with one repeat
    freedom: float | None = None  # degrees of freedom of that error
    inside: float | None = None  # the same error as the windows alone show it, which bounds the interval from below

    @property
    def half_width(self) -> float | None:
        """Half the interval's width relative to the value."""
        if self.low is None or self.high is None or self.value == 0:
            return None
        return (self.high - self.low) / 2 / self.value


@dataclass(frozen=True)
class Shift:
    """A level that changed midway: from the window at `index` on, windows take `ratio` times as long as before."""

    index: int
    before: float
    after: float
    score: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


def clean(values: Sequence[float] | Array) -> Array:
    """The finite values as an array, in their order."""
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]


def median_draws(values: Array, rng: np.random.Generator, draws: int = DRAWS) -> Array:
    """Medians of `draws` bootstrap resamples of `values`.

    The k-th smallest of n draws with replacement from sorted x is x at rank n U, U the k-th smallest of n uniforms,
    which is Beta(k, n-k+1); given it, the next one is 1 - (1-U) V^(1/(n-k)), V uniform (Rényi 1953; David and Nagaraja,
    Order Statistics, 2003, 2.5). So a resample's median costs one or two draws, not n. Between ranks x is interpolated
    (a smoothed bootstrap): without it the interval of 31 values jumps from 92.5 to 97.3 % coverage and knows nothing
    between.
    """
    ordered = np.sort(values)
    n = len(ordered)
    k = (n + 1) // 2
    ranks = np.arange(n) + 0.5
    low = rng.beta(k, n - k + 1, draws)
    at_low = np.interp(low * n, ranks, ordered)
    if n % 2:
        return at_low
    high = 1.0 - (1.0 - low) * rng.random(draws) ** (1.0 / (n - k))
    return np.asarray((at_low + np.interp(high * n, ranks, ordered)) / 2, dtype=np.float64)


def fewest_windows(level: float = LEVEL) -> int:
    """The fewest values whose range covers their population's median with probability `level`: 1 - 2^(1-n) >= level."""
    return math.ceil(1 - math.log2(1 - level))


def median_estimate(repeats: Sequence[Sequence[float] | Array], level: float = LEVEL) -> Estimate | None:
    """The median of all windows with its interval, from the windows of each repeat; null where there is no window.

    One repeat: bootstrap over its windows (Efron 1979), expanded percentiles. More: the standard error of the log
    median from resampling whole repeats (Davison and Hinkley, Bootstrap Methods, 1997, 3.8), with Student's quantile
    for repeats - 1 degrees of freedom, because few clusters make a percentile interval too narrow. Never narrower than
    the interval that the windows alone give: repeats may agree by luck.
    """
    groups = _groups(repeats)
    if not groups:
        return None
    pooled = np.concatenate(groups)
    value = float(np.median(pooled))
    if len(groups) == 1 or value <= 0 or any(np.median(group) <= 0 for group in groups):
        return _window_estimate(pooled, value, level)
    error, freedom, inside = _cluster_error(groups), len(groups) - 1, _window_error(pooled)
    factor = math.exp(_reach(error, freedom, inside, level))
    note = "" if len(groups) > 2 else "two repeats: the interval is wide because two say little about a third"
    method = "cluster bootstrap over repeats, Student's t"
    low, high = value / factor, value * factor
    return Estimate(value, low, high, len(pooled), len(groups), method, note, error, freedom, inside)


def _groups(repeats: Sequence[Sequence[float] | Array]) -> list[Array]:
    """The finite windows of each repeat that has any."""
    return [array for array in (clean(values) for values in repeats) if len(array)]


def _window_error(values: Array) -> float:
    """Standard error of the log of the median of `values`, as its windows alone show it."""
    if float(np.ptp(values)) == 0.0:
        return 0.0
    return float(np.std(np.log(median_draws(values, np.random.default_rng(SEED), DRAWS_OF_ERROR))))


def _window_estimate(values: Array, value: float, level: float) -> Estimate:
    """The estimate from the windows of one process."""
    n = len(values)
    if n < fewest_windows(level):
        return Estimate(value, None, None, n, 1, "none", _too_few(n, level))
    if float(np.ptp(values)) == 0.0:
        return Estimate(value, value, value, n, 1, "none needed", "every window took the same time: the clock's step")
    draws = median_draws(values, np.random.default_rng(SEED))
    low, high = np.quantile(draws, _percentiles(n, level))
    return Estimate(value, float(low), float(high), n, 1, "expanded-percentile bootstrap over windows", "one repeat")


def _reach(error: float, freedom: float, inside: float, level: float) -> float:
    """How far an interval reaches to both sides, as a logarithm: Student's quantile of the repeats' error, and at least the normal
    quantile of the windows' error. (Student's quantile of the larger error covers 98 to 100 % with two or three repeats.) It ends at
    FARTHEST: two repeats a decade apart, in a table of fifty rows, would overflow a floating-point number."""
    gauss = NormalDist().inv_cdf((1 + level) / 2)
    return min(FARTHEST, max(student_quantile((1 + level) / 2, freedom) * error, gauss * inside))


def error_draws(estimate: Estimate, rng: np.random.Generator, draws: int) -> Array:
    """Errors of the log median as the estimate's interval has them: of its repeats, or of its windows where those reach farther."""
    error, freedom, inside = estimate.error or 0.0, estimate.freedom or 1.0, estimate.inside or 0.0
    if _reach(error, freedom, 0.0, LEVEL) >= _reach(0.0, freedom, inside, LEVEL):
        return np.asarray(error * rng.standard_t(freedom, draws))
    return np.asarray(inside * rng.standard_normal(draws))


def _too_few(windows: int, level: float) -> str:
    share = f"{level:.0%}".replace("%", " %")
    word = "window" if windows == 1 else "windows"
    return f"{windows} {word}: fewer than the {fewest_windows(level)} that a {share} interval needs"


def _percentiles(n: int, level: float) -> tuple[float, float]:
    """The two percentiles of the bootstrap distribution of n values that cover `level`.

    Expanded as for a mean's t interval (Hesterberg, The American Statistician 69, 2015, 4.2): resampling n values shows
    less than their population's spread. Plain percentiles covered 93 % of the simulated medians of six to ten values.
    """
    reach = math.sqrt(n / (n - 1)) * student_quantile((1 + level) / 2, n - 1)
    tail = NormalDist().cdf(-reach)
    return tail, 1 - tail


def _cluster_error(groups: Sequence[Array]) -> float:
    """Standard error of the log of the pooled median when whole repeats are resampled."""
    count = len(groups)
    labels = np.concatenate([np.full(len(group), index) for index, group in enumerate(groups)])
    pooled = np.concatenate(groups)
    order = np.argsort(pooled, kind="stable")
    ordered, labels = pooled[order], labels[order]
    weights, chances = _resamples_of_repeats(count)
    # The weighted median of every resample at once: where half of the resample's windows lie below.
    below = np.cumsum(weights[:, labels], axis=1)
    total = below[:, -1:]
    low = ordered[np.argmax(below >= total / 2, axis=1)]
    high = ordered[np.argmax(below > total / 2, axis=1)]
    logs = np.log((low + high) / 2)
    mean = float(np.sum(chances * logs))
    variance = float(np.sum(chances * (logs - mean) ** 2))
    # count - 1 degrees of freedom are left of count, as in a sample's variance.
    return math.sqrt(variance * count / (count - 1))


@functools.cache
def _resamples_of_repeats(count: int) -> tuple[npt.NDArray[np.int64], Array]:
    """How often each repeat is drawn in a resample, and its chance: all resamples up to six repeats, else some."""
    if count > 6:
        rng = np.random.default_rng(SEED)
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=500)
        return drawn.astype(np.int64), np.full(500, 1 / 500)
    rows, chances = [], []
    for chosen in combinations_with_replacement(range(count), count):
        times = [chosen.count(index) for index in range(count)]
        rows.append(times)
        chances.append(math.factorial(count) / math.prod(math.factorial(n) for n in times) / count**count)
    return np.array(rows, dtype=np.int64), np.array(chances)


def ratio_estimate(
    numerator: Sequence[Sequence[float] | Array],
    denominator: Sequence[Sequence[float] | Array],
    level: float = LEVEL,
    *,
    alike: bool = False,
) -> Estimate | None:
    """The ratio of two cells' medians with its interval, from each cell's windows by repeat; null where one is empty.

    One repeat each: percentile bootstrap of both medians at once. Repeats on a side: the two log errors added in
    square, Student's t with Welch's degrees of freedom; a side with one repeat brings only the error that its windows
    show, and the ratio then has no error of its own. `alike`: both sides are measurements of one cell, as in
    `runner verify`, and the estimator is the same (log_ratio); one repeat can then be held against many.
    """
    groups = _groups(numerator), _groups(denominator)
    if not all(groups) or any(np.median(group) <= 0 for side in groups for group in side):
        return None
    above, below = (np.concatenate(side) for side in groups)
    value = float(np.median(above) / np.median(below))
    windows, repeats = min(len(above), len(below)), min(len(side) for side in groups)
    single = [side[0] for side in groups if len(side) == 1]
    if any(len(values) < fewest_windows(level) for values in single):
        note = _too_few(min(len(values) for values in single), level)
        return Estimate(value, None, None, windows, repeats, "none", note)
    if len(single) == 2:
        low, high = _single_interval(above, below, level)
        note = "one repeat each: nothing here says how much another run would differ"
        return Estimate(value, low, high, windows, repeats, "expanded-percentile bootstrap over windows", note)
    if alike:
        log = log_ratio(*groups)
        value, error, freedom = math.exp(log.value), log.error, log.freedom
        method = "medians of the repeats, Student's t"
    else:
        error, freedom = _welch(*groups)
        method = "cluster bootstrap over repeats, Welch's t"
    inside = math.hypot(_window_error(above), _window_error(below))
    factor = math.exp(_reach(error, freedom, inside, level))
    note = ""
    if repeats == 1:
        scatter = (
            "assumed to scatter as those of the other side" if alike else "how much another run differs is not known"
        )
        note = f"one side has one repeat: {scatter}"
    of_repeats = error if alike or repeats > 1 else None
    return Estimate(value, value / factor, value * factor, windows, repeats, method, note, of_repeats, freedom, inside)


def _single_interval(above: Array, below: Array, level: float) -> tuple[float, float]:
    """The interval of the ratio of two processes' medians."""
    rng = np.random.default_rng(SEED)
    logs = np.log(median_draws(above, rng)) - np.log(median_draws(below, rng))
    low, high = np.quantile(logs, _percentiles(2 * min(len(above), len(below)) - 1, level))
    return math.exp(low), math.exp(high)


def _welch(above: Sequence[Array], below: Sequence[Array]) -> tuple[float, float]:
    """Standard error of the log ratio and its degrees of freedom, where the sides may scatter differently."""
    sides = [(_side_error(side), (len(side) if len(side) > 1 else len(side[0])) - 1) for side in (above, below)]
    error = math.hypot(*(side for side, _ in sides))
    spread = sum(side**4 / freedom for side, freedom in sides)
    return error, max(1.0, error**4 / spread) if spread > 0 else 1.0


@dataclass(frozen=True)
class LogRatio:
    """The logarithm of the ratio of two measurements of one cell, each of some repeats."""

    value: float
    variance: float  # between repeats, of the logarithm of a repeat's median
    freedom: float  # degrees of freedom of that variance
    counts: tuple[int, int]  # repeats of each side

    @property
    def error(self) -> float:
        """Standard error of the value."""
        return math.sqrt(self.variance * sum(1 / count for count in self.counts))


def log_ratio(
    numerator: Sequence[Array], denominator: Sequence[Array], prior_deviation: float = 0.0, prior_freedom: float = 0.0
) -> LogRatio:
    """The difference of the mean log medians of the repeats, as Student's t test has it: `runner compare` and `runner verify`.

    The repeats of both sides scatter alike, so one variance comes from all of them. A prior counts as `prior_freedom`
    further observations of `prior_deviation` (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004); without one a side needs
    two repeats.
    """
    sides = [np.log([np.median(repeat) for repeat in side]) for side in (numerator, denominator)]
    scatter = sum(float(np.sum((side - side.mean()) ** 2)) for side in sides)
    freedom = prior_freedom + sum(len(side) - 1 for side in sides)
    variance = (prior_freedom * prior_deviation**2 + scatter) / freedom
    return LogRatio(float(sides[0].mean() - sides[1].mean()), variance, freedom, (len(sides[0]), len(sides[1])))


def _side_error(groups: Sequence[Array]) -> float:
    """Standard error of a side's log median: of its repeats, or of the windows where it has one repeat."""
    return _window_error(groups[0]) if len(groups) == 1 else _cluster_error(groups)


def spanning(ratio: Estimate, above: Sequence[float], below: Sequence[float]) -> Estimate:
    """A ratio whose interval also holds every level that its sides were at: of an unsteady one any may be the next.

    `above` are the levels of the numerator and `below` those of the denominator, each with its median.
    """
    if ratio.low is None or ratio.high is None:
        return ratio
    low, high = min(ratio.low, min(above) / max(below)), max(ratio.high, max(above) / min(below))
    note = "; ".join(part for part in (ratio.note, "unsteady: the interval spans the levels before and after") if part)
    return replace(ratio, low=low, high=high, note=note)


def p_value(ratio: Estimate) -> float | None:
    """The chance of a ratio at least so far from 1, were the truth 1; null where repeats do not say what chance is.

    The ratio's interval is one of 95 %. One that was widened over several levels answers for the level nearest to 1.
    """
    if ratio.error is None or ratio.freedom is None or ratio.inside is None or ratio.low is None or ratio.high is None:
        return None
    if max(ratio.error, ratio.inside) == 0:
        return None
    reach = _reach(ratio.error, ratio.freedom, ratio.inside, LEVEL)
    low, high = math.log(ratio.low) + reach, math.log(ratio.high) - reach
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    of_repeats = student_tail(nearest / ratio.error, ratio.freedom) if ratio.error else 0.0
    of_windows = math.erfc(nearest / ratio.inside / math.sqrt(2)) if ratio.inside else 0.0
    return max(of_repeats, of_windows)


def holm(values: Sequence[float]) -> list[float]:
    """p-values adjusted for being asked together, in their order (Holm, Scandinavian Journal of Statistics 6, 1979).

    Calling those up to 0.05 real errs about any of them in at most 5 % of families, however the values depend on one
    another: cells of one run share a machine, and Benjamini and Hochberg's more powerful rule leaves 5 % of all that
    it calls real wrong, which is too many where one wrong row stops somebody's change.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted = [0.0] * len(values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = largest
    return adjusted


def widened(estimate: Estimate, shifts: Sequence[Shift]) -> Estimate:
    """An estimate whose interval also spans the levels before and after each shift: either may be the one to come."""
    if not shifts or estimate.low is None or estimate.high is None:
        return estimate
    levels = [level for shift in shifts for level in (shift.before, shift.after)]
    note = "; ".join(part for part in (estimate.note, "unsteady: the interval spans both levels") if part)
    return replace(estimate, low=min(estimate.low, *levels), high=max(estimate.high, *levels), note=note)


# A segment is at least this long: two or three windows alone are a warm-up cut too early, no level.
SHORTEST_SEGMENT = 5
FEWEST_FOR_STEADINESS = 3 * SHORTEST_SEGMENT
# 99.9 % of white-noise series of 30 or more windows stay below it (simulated, tests/unit/runner/results/test_statistics.py).
SHIFT_SCORE = 5.2
# Smaller shifts are real on a quiet machine, but below what frameworks are compared by.
SMALLEST_SHIFT = 0.02
# A single window counts for at most this many noise widths, so that a few outliers make no level.
CLIP = 3.0


def level_shift(values: Sequence[float] | Array) -> Shift | None:
    """The midway change of level in a series of positive window times, or null where there is none to see.

    CUSUM of the logs, centred at the median, scaled by the noise between neighbours (1.4826 MAD of differences / sqrt
    2, which a shift does not inflate), clipped; the split with the greatest |S_k - k/n S_n| / sqrt(k (n-k) / n) is the
    candidate (Page 1954; Csörgő and Horváth, Limit Theorems in Change-Point Analysis, 1997). It counts when the score
    is beyond noise and the medians of the two sides differ by 2 % or more. Fewer than 15 windows cannot tell: null.
    """
    series = clean(values)
    n = len(series)
    if n < FEWEST_FOR_STEADINESS or np.any(series <= 0):
        return None
    logs = np.log(series)
    steps = np.diff(logs)
    noise = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2)
    noise = max(noise, 1e-3)  # timings of a coarse clock repeat exactly; a shift below 0.1 % is no matter anyway
    scaled = np.clip((logs - np.median(logs)) / noise, -CLIP, CLIP)
    splits = np.arange(SHORTEST_SEGMENT, n - SHORTEST_SEGMENT + 1)
    sums = np.cumsum(scaled)
    scores = np.abs(sums[splits - 1] - splits / n * sums[-1]) / np.sqrt(splits * (n - splits) / n)
    best = int(np.argmax(scores))
    index = int(splits[best])
    before, after = float(np.median(series[:index])), float(np.median(series[index:]))
    if scores[best] < SHIFT_SCORE or max(before, after) / min(before, after) < 1 + SMALLEST_SHIFT:
        return None
    return Shift(index, before, after, float(scores[best]))
