"""Statistics of a set of timings: a step time or a ratio, and how sure it is.

Pure functions of numbers; no unit is assumed but that timings are positive. Every interval is two-sided and 95 % unless
a level is given. Random draws are seeded, so that a report rendered twice says the same.

Windows of one repeat and repeats of one cell are different things. Windows say how the times scatter inside one
process; only repeats (each a process of its own) say what another run would give. So with two or more repeats the
interval comes from the repeats, and with one repeat the estimate says that it knows one process only.

The level of a repeat is the sum of its time over the sum of its steps: that is what a person pays. The typical step is the median of its
windows, which does not see what happens in less than half of them. Where the two differ the process stalls (`stalls`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from runner.results.student import student_quantile, student_tail

Array = npt.NDArray[np.float64]

LEVEL = 0.95
ALPHA = 1 - LEVEL  # the chance of a false claim about two cells, over all the questions of a table
SEED = 20201
# The largest logarithm of a factor by which an interval reaches: e^600 times any time is still a number.
FARTHEST = 600.0
_MANY = 1e6  # degrees of freedom: from here on Student's distribution is the normal one
# Standard deviation of the log level that all measurements of one run share, by the kind of device: of a session. Assumed, not
# measured: clocks, temperature and other work of the machine differ from one run to the next, less on a GPU than on a CPU.
SESSION_DEVIATION = {"cuda": 0.01, "cpu": 0.02}
# The same of the log level between repeats of one run on a quiet machine. Assumed too: one repeat does not show it.
REPEAT_DEVIATION = {"cuda": 0.01, "cpu": 0.02}

# Of three repeats or more, the stalls of one count for at most so many times those of the median repeat, and as much more as noise puts
# between the mean of its windows and their median: so many deviations of that, within these logarithms. A framework's own stalls come in
# every repeat, and what comes in one is the machine's. Chosen by simulation: docs/statistics.md.
MOST_STALLS = 2.0
DEVIATIONS_OF_NOISE = 1.5
LEAST_SLACK, MOST_SLACK = 0.002, 0.01
# Of time over the typical step: less is not worth a word.
SMALLEST_STALL = 0.02
# A window is long beyond so many widths of the others, and beyond this share of the typical step.
LONG_WIDTHS, LONG_SHARE = 5.0, 0.1


def of_kind(figures: Mapping[str, float], device_kind: str) -> float:
    """The figure of a kind of device; of one that is not known, the widest."""
    return figures.get(device_kind, max(figures.values()))


@dataclass(frozen=True)
class Estimate:
    """A step time or a ratio with its interval; low and high are null where the data carry none, and `note` says why."""

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


def clean(values: Sequence[float] | Array) -> Array:
    """The finite values as an array, in their order."""
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]


def median(values: Array) -> float:
    """The median of values of which none is lacking: numpy's, which takes ten times as long for some dozens."""
    ordered = np.sort(values)
    middle = len(ordered) // 2
    return float(ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


@dataclass(frozen=True, eq=False)
class Timings:
    """The windows of one repeat, or of several in one: seconds a step of each, and how many steps it had."""

    step_seconds: Array
    steps: Array

    def __len__(self) -> int:
        return len(self.step_seconds)

    @cached_property
    def level(self) -> float:
        """Seconds a step: the sum of the time over the sum of the steps."""
        return float(self.step_seconds @ self.steps) / float(self.steps.sum())

    @cached_property
    def typical(self) -> float:
        """Seconds a step in the median window."""
        return median(self.step_seconds)

    @cached_property
    def width(self) -> float:
        """The deviation of the windows as a share of the typical step, as their median distance from it shows it."""
        return 1.4826 * median(np.abs(self.step_seconds / self.typical - 1))

    @cached_property
    def error(self) -> float:
        """Standard error of the log of the level as the windows show it, were they independent of one another."""
        if len(self) < 2 or float(np.ptp(self.step_seconds)) == 0.0:
            return 0.0
        away = (self.step_seconds / self.level - 1) * self.steps
        return math.sqrt(len(self) / (len(self) - 1) * float(away @ away)) / float(self.steps.sum())

    @cached_property
    def inflation(self) -> float:
        """By how much the correlation of neighbouring windows inflates the square of that error; at least 1."""
        return _inflation(self.step_seconds)

    def scaled(self, factor: float) -> Timings:
        """The same windows, were each so many times as long."""
        return replace(self, step_seconds=self.step_seconds * factor)


# The windows of a repeat: seconds a step of each, which all have the same number of steps unless Timings say otherwise.
Windowed = Sequence[float] | Array | Timings


def timings(windows: Windowed) -> Timings:
    """The finite windows."""
    if isinstance(windows, Timings):
        finite = np.isfinite(windows.step_seconds)
        return windows if finite.all() else Timings(windows.step_seconds[finite], windows.steps[finite])
    values = clean(windows)
    return Timings(values, np.ones(len(values)))


def pooled(repeats: Sequence[Windowed]) -> Timings:
    """The windows of several repeats as those of one."""
    all_of = [timings(windows) for windows in repeats]
    return Timings(*(np.concatenate([getattr(one, name) for one in all_of]) for name in ("step_seconds", "steps")))


def log_levels(repeats: Sequence[Windowed]) -> Array:
    """The logarithm of the level of each repeat of one cell, with the stalls that are the cell's own.

    Of one or two repeats, and where all stall alike, it is that of total time over total steps. Of three or more, stalls that the median
    repeat does not have are a disturbance of the machine: they count up to MOST_STALLS times those of the median repeat, and as far as
    noise goes. A mean below the median is bounded in the same way.
    """
    groups = [timings(windows) for windows in repeats]
    stalled = _log_stalled(groups)
    return np.asarray(log_typical(groups) + np.clip(stalled, *_counted(groups, stalled)))


def log_typical(repeats: Sequence[Windowed]) -> Array:
    """The logarithm of the typical step of each repeat."""
    return np.log([timings(windows).typical for windows in repeats])


def _log_stalled(repeats: Sequence[Windowed]) -> Array:
    """The logarithm of the level over the typical step of each repeat: the time that the median of the windows does not see."""
    return np.log([windows.level / windows.typical for windows in map(timings, repeats)])


def _counted(groups: Sequence[Timings], stalled: Array) -> tuple[float, float]:
    """From and up to which logarithm the stalls of a repeat count."""
    if len(stalled) < 3:
        return -math.inf, math.inf
    # The deviation of a mean less the median of normal values is that of the mean times sqrt(pi / 2 - 1).
    noise = math.sqrt(math.pi / 2 - 1) * median(np.array([group.width / math.sqrt(len(group)) for group in groups]))
    slack = min(MOST_SLACK, max(LEAST_SLACK, DEVIATIONS_OF_NOISE * noise))
    middle = median(stalled)
    return MOST_STALLS * min(0.0, middle) - slack, MOST_STALLS * max(0.0, middle) + slack


@dataclass(frozen=True)
class Stalls:
    """How much longer the steps of a cell take than its typical step, and by which windows."""

    longer: float  # a share of the typical step
    every: float | None = None  # one window in so many is long; None where no few windows stand out
    factor: float | None = None  # how many times as long as the typical step these take

    def __str__(self) -> str:
        if self.every is None or self.factor is None:
            return f"uneven: the mean step is {100 * self.longer:.2g}\u00a0% longer than the typical one"
        return f"stalls: one window in {max(2, round(self.every))} takes {self.factor:.2g} times as long"


def stalls(repeats: Sequence[Windowed]) -> Stalls | None:
    """The stalls of a cell, from the windows of its repeats; None where its level is its typical step within noise."""
    groups = _groups(repeats)
    if not groups or any(group.typical <= 0 for group in groups):
        return None
    longer = float(np.mean(log_levels(groups) - log_typical(groups)))
    if longer < math.log1p(SMALLEST_STALL):
        return None
    if (found := _long_windows(groups, groups)) is None:
        return Stalls(math.expm1(longer)) if longer > 2 * _noise_of_levels(groups) / len(groups) else None
    return Stalls(math.expm1(longer), *found)


def _long_windows(groups: Sequence[Timings], among: Sequence[Timings]) -> tuple[float, float] | None:
    """(one window in so many, how many times as long as typical): the few windows of these repeats that make their levels longer.

    None where none stand out. Long is what lies far beyond the windows of the repeats `among`.
    """
    windows, usual = (pooled([one.scaled(1 / one.typical) for one in part]) for part in (groups, among))
    away = windows.step_seconds - 1
    long = away > max(LONG_SHARE, LONG_WIDTHS * 1.4826 * median(np.abs(usual.step_seconds - 1)))
    share = float(windows.steps[long].sum() / windows.steps.sum())
    if not share or float(away[long] @ windows.steps[long]) < float(away @ windows.steps) / 2:
        return None
    return 1 / share, float(windows.step_seconds[long] @ windows.steps[long]) / float(windows.steps[long].sum())


def _noise_of_levels(groups: Sequence[Timings]) -> float:
    """Standard error of the sum of these log levels, as their windows show it."""
    return math.sqrt(sum(group.error**2 * group.inflation for group in groups))


@dataclass(frozen=True)
class LeftOut:
    """The stalls that do not count in the level of a cell: few of its repeats have them."""

    repeats: int  # that stalled
    of: int
    longer: float  # how much longer the steps of the cell take with them, as a share

    def __str__(self) -> str:
        few = f"{self.repeats} of {self.of} repeats stalled"
        return f"{few}: by all of its time the cell takes {1 + self.longer:.3g} times as long"


def left_out(repeats: Sequence[Windowed]) -> LeftOut | None:
    """The stalls beyond those that `log_levels` counts; None where that is noise."""
    groups = _groups(repeats)
    if len(groups) < 3 or any(group.typical <= 0 for group in groups):
        return None
    stalled = _log_stalled(groups)
    beyond = np.maximum(0.0, stalled - _counted(groups, stalled)[1])
    longer, stalling = float(beyond.mean()), [group for group, more in zip(groups, beyond, strict=True) if more > 0]
    if longer < math.log1p(SMALLEST_STALL):
        return None
    if _long_windows(stalling, groups) is None and longer * len(groups) <= 2 * _noise_of_levels(stalling):
        return None
    return LeftOut(len(stalling), len(groups), math.expm1(longer))


def fewest_windows(level: float = LEVEL) -> int:
    """The fewest values whose range covers their population's median with probability `level`: 1 - 2^(1-n) >= level."""
    return math.ceil(1 - math.log2(1 - level))


def step_estimate(repeats: Sequence[Windowed], level: float = LEVEL) -> Estimate | None:
    """The geometric mean of the repeats' levels with its interval, from the windows of each repeat; null where there is no window.

    One repeat: Student's interval of the mean of its windows, stretched by their correlation. Of highly correlated windows it remains too
    short: 76 with 0.95 between neighbours cover 77 %. More repeats: Student's interval of the mean of the log levels. Never narrower than
    the interval that the windows alone give: repeats may agree by luck. A ratio of two step times is the quotient of two such values, so a
    table's ratios and its milliseconds never contradict one another.
    """
    groups = _groups(repeats)
    if not groups:
        return None
    if len(groups) == 1 or any(group.typical <= 0 for group in groups):
        return _window_estimate(pooled(groups), level)
    logs = log_levels(groups)
    error, freedom, inside = _error(logs), len(logs) - 1, _window_error(groups)
    factor = math.exp(_reach(error, freedom, inside, level))
    note = "" if len(groups) > 2 else "two repeats: the interval is wide because two say little about a third"
    method = "geometric mean of the repeats' levels, Student's t"
    value, windows = math.exp(float(logs.mean())), sum(map(len, groups))
    return Estimate(value, value / factor, value * factor, windows, len(groups), method, note, error, freedom, inside)


def _error(logs: Array) -> float:
    """Standard error of the mean of two values or more."""
    return float(np.std(logs, ddof=1)) / math.sqrt(len(logs))


def _groups(repeats: Sequence[Windowed]) -> list[Timings]:
    """The finite windows of each repeat that has any."""
    return [group for group in map(timings, repeats) if len(group)]


def _window_error(groups: Sequence[Timings]) -> float:
    """Standard error of the log of a step time, as the windows alone show it.

    With one repeat it counts the correlation of its windows. With more, the error of the repeats holds that already, and the median repeat
    says how far windows scatter: the machine may have disturbed another one.
    """
    if len(groups) == 1:
        return groups[0].error * math.sqrt(groups[0].inflation)
    return median(np.array([group.error for group in groups])) / math.sqrt(len(groups))


def _window_estimate(windows: Timings, level: float) -> Estimate:
    """The estimate from the windows of one process."""
    n, value = len(windows), windows.level
    if n < fewest_windows(level):
        return Estimate(value, None, None, n, 1, "none", too_few(n, level))
    if float(np.ptp(windows.step_seconds)) == 0.0:
        return Estimate(value, value, value, n, 1, "none needed", "every window took the same time: the clock's step")
    inside = _window_error([windows])
    factor = math.exp(min(FARTHEST, student_quantile((1 + level) / 2, _window_freedom(windows)) * inside))
    method = "mean of the windows, Student's t"
    return Estimate(value, value / factor, value * factor, n, 1, method, "one repeat", inside=inside)


def _window_freedom(windows: Timings) -> float:
    """Degrees of freedom of the windows of one process: of correlated ones, as many as tell as much."""
    return max(2.0, len(windows) / windows.inflation - 1)


def _inflation(values: Array) -> float:
    """By how much the correlation of neighbouring windows inflates the variance of their mean; at least 1.

    1 + 2 (r_1 + r_2 + ...) of the ranks, up to the first pair of lags whose sum is not positive; the sums of pairs may not grow
    (Geyer, Statistical Science 7, 1992, 3.3). Ranks bound outliers, and covered more than signs. One of twenty series of white
    noise has 1 + 6 / sqrt(n) or more by chance: less counts as 1.
    """
    n = len(values)
    _, order, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(counts) == 1:
        return 1.0
    # Equal values, which a coarse clock gives, share the middle of their ranks.
    ranks = (np.cumsum(counts) - counts / 2)[order] - n / 2
    inflation, least = -1.0, math.inf
    for lag in range(0, n // 2 - 1, 2):
        pair = sum(float(ranks[at:] @ ranks[: n - at]) for at in (lag, lag + 1)) / float(ranks @ ranks)
        if pair <= 0:
            break
        least = min(least, pair)
        inflation += 2 * least
    return inflation if inflation >= 1 + 6 / math.sqrt(n) else 1.0


def _reach(error: float, freedom: float, inside: float, level: float) -> float:
    """How far an interval reaches to both sides, as a logarithm: Student's quantile of the repeats' error, and at least the normal
    quantile of the windows' error. (Student's quantile of the larger error covers 98 to 100 % with two or three repeats.) It ends at
    FARTHEST: two repeats a decade apart, in a table of fifty rows, would overflow a floating-point number."""
    gauss = NormalDist().inv_cdf((1 + level) / 2)
    return min(FARTHEST, max(student_quantile((1 + level) / 2, freedom) * error, gauss * inside))


def error_draws(estimate: Estimate, rng: np.random.Generator, draws: int) -> Array:
    """Errors of the log level as the estimate's interval has them: of its repeats, or of its windows where those reach farther."""
    error, freedom, inside = estimate.error or 0.0, estimate.freedom or 1.0, estimate.inside or 0.0
    if _reach(error, freedom, 0.0, LEVEL) >= _reach(0.0, freedom, inside, LEVEL):
        return np.asarray(error * rng.standard_t(freedom, draws))
    return np.asarray(inside * rng.standard_normal(draws))


def too_few(windows: int, level: float = LEVEL) -> str:
    """Why so many windows have no interval. Every place that says so begins with these words."""
    # Rounded down: over many pairs the level is 99.96 %, and no interval is one of 100 %.
    share = f"{math.floor(level * 1e4 + 1e-6) / 100:g} %"
    return f"too few windows: {windows}, and a {share} interval needs {fewest_windows(level)}"


def ratio_estimate(
    numerator: Sequence[Windowed],
    denominator: Sequence[Windowed],
    level: float = LEVEL,
    *,
    alike: bool = False,
    within: Difference | None = None,
) -> Estimate | None:
    """The quotient of two cells' step times (step_estimate) with its interval, from each cell's windows by repeat; null where one is empty.

    One repeat each: the errors of both as their windows show them. Repeats on a side: the two log errors added in
    square, Student's t with Welch's degrees of freedom; a side with one repeat brings only the error that its windows
    show, and the ratio then has no error of its own. `alike`: both sides are measurements of one cell, as in
    `runner verify`, so one variance comes from the repeats of both, and one repeat can be held against many. `within`: the
    difference of the sides within blocks (runner.results.rank.blocks), which both were measured in.
    """
    groups = _groups(numerator), _groups(denominator)
    if not all(groups) or any(group.typical <= 0 for side in groups for group in side):
        return None
    value = math.exp(float(log_levels(groups[0]).mean() - log_levels(groups[1]).mean()))
    windows, repeats = min(sum(map(len, side)) for side in groups), min(len(side) for side in groups)
    single = [side[0] for side in groups if len(side) == 1]
    if any(len(values) < fewest_windows(level) for values in single):
        note = too_few(min(len(values) for values in single), level)
        return Estimate(value, None, None, windows, repeats, "none", note)
    inside = math.hypot(*map(_window_error, groups))
    if len(single) == 2:
        freedom = min(map(_window_freedom, single))
        factor = math.exp(min(FARTHEST, student_quantile((1 + level) / 2, freedom) * inside))
        note = "one repeat each: nothing here says how much another run would differ"
        return Estimate(
            value, value / factor, value * factor, windows, repeats, "mean of the windows, Student's t", note
        )
    if within:
        value, error, freedom = math.exp(within.value), within.error, within.freedom
        method = "levels of the repeats within blocks, Student's t"
    elif alike:
        log = log_ratio(*groups)
        error, freedom = log.error, log.freedom
        method = "levels of the repeats, Student's t"
    else:
        error, freedom = _welch(*groups)
        method = "levels of the repeats, Welch's t"
    factor = math.exp(_reach(error, freedom, inside, level))
    note = ""
    if repeats == 1:
        scatter = (
            "assumed to scatter as those of the other side" if alike else "how much another run differs is not known"
        )
        note = f"one side has one repeat: {scatter}"
    of_repeats = error if alike or repeats > 1 else None
    return Estimate(value, value / factor, value * factor, windows, repeats, method, note, of_repeats, freedom, inside)


@dataclass(frozen=True)
class Difference:
    """The difference of two cells' log levels, its standard error, and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float
    # The error may be larger than these few degrees of freedom show, and what is known besides adds none to them.
    doubted: bool = False


def _welch(above: Sequence[Timings], below: Sequence[Timings]) -> tuple[float, float]:
    """Standard error of the log ratio and its degrees of freedom, where the sides may scatter differently."""
    sides = [(_side_error(side), (len(side) if len(side) > 1 else len(side[0])) - 1) for side in (above, below)]
    error = math.hypot(*(side for side, _ in sides))
    spread = sum(side**4 / freedom for side, freedom in sides)
    return error, max(1.0, error**4 / spread) if spread > 0 else 1.0


@dataclass(frozen=True)
class LogRatio:
    """The logarithm of the ratio of two measurements of one cell, each of some repeats."""

    value: float
    variance: float  # between repeats, of the logarithm of a repeat's level
    freedom: float  # degrees of freedom of that variance
    counts: tuple[int, int]  # repeats of each side

    @property
    def error(self) -> float:
        """Standard error of the value."""
        return math.sqrt(self.variance * sum(1 / count for count in self.counts))


def log_ratio(numerator: Sequence[Windowed], denominator: Sequence[Windowed]) -> LogRatio:
    """The difference of the mean log levels of the repeats, as Student's t test has it. One side has two repeats or more.

    The repeats of both sides scatter alike, so one variance comes from all of them.
    """
    sides = [log_levels(side) for side in (numerator, denominator)]
    scatter = sum(float(np.sum((side - side.mean()) ** 2)) for side in sides)
    freedom = sum(len(side) - 1 for side in sides)
    variance = scatter / freedom
    return LogRatio(float(sides[0].mean() - sides[1].mean()), variance, freedom, (len(sides[0]), len(sides[1])))


def _side_error(groups: Sequence[Timings]) -> float:
    """Standard error of a side's log level: of its repeats, or of the windows where it has one repeat."""
    return _window_error(groups) if len(groups) == 1 else _error(log_levels(groups))


def beside(
    ratio: Estimate, shift: float, deviation: float, level: float = LEVEL, *, estimated: bool = False
) -> Estimate:
    """The ratio divided by e^shift, where the logarithm `shift` is known up to a standard deviation: all else that moved both sides.

    Beside a shift of 0 the deviation is that of what two sessions may differ by. It is taken as known, so it adds to the
    degrees of freedom (Welch and Satterthwaite), unless it was `estimated` from the same repeats. The ratio's interval is one of `level`.
    """
    value = ratio.value / math.exp(shift)
    if ratio.low is None or ratio.high is None:
        return replace(ratio, value=value)
    gauss = NormalDist().inv_cdf((1 + level) / 2)
    if ratio.error is None or ratio.freedom is None or ratio.inside is None:
        ends = (math.hypot(math.log(end / ratio.value), gauss * deviation) for end in (ratio.low, ratio.high))
        down, up = (math.exp(min(FARTHEST, end)) for end in ends)
        return replace(ratio, value=value, low=value / down, high=value * up)
    error, inside = math.hypot(ratio.error, deviation), math.hypot(ratio.inside, deviation)
    freedom = min(_MANY, ratio.freedom * (error / ratio.error) ** 4) if ratio.error else _MANY
    freedom = ratio.freedom if estimated else freedom
    # An interval that was widened over several levels stays wider by as much.
    wider = _reach(error, freedom, inside, level) - _reach(ratio.error, ratio.freedom, ratio.inside, level)
    low, high = (math.exp(math.log(end) - shift + side * wider) for end, side in ((ratio.low, -1), (ratio.high, 1)))
    return replace(ratio, value=value, low=low, high=high, error=error, freedom=freedom, inside=inside)


def inverted(ratio: Estimate) -> Estimate:
    """The ratio with its sides exchanged."""
    low, high = (None if end is None else 1 / end for end in (ratio.high, ratio.low))
    return replace(ratio, value=1 / ratio.value, low=low, high=high)


def noted(estimate: Estimate, note: str) -> Estimate:
    """The estimate with one more note."""
    return replace(estimate, note="; ".join(filter(None, (estimate.note, note))))


def moved(estimate: Estimate, value: float) -> Estimate:
    """The estimate at another value, with an interval that reaches as far from it as before, in logarithms."""
    factor = value / estimate.value
    low, high = (None if end is None else end * factor for end in (estimate.low, estimate.high))
    return replace(estimate, value=value, low=low, high=high)


def with_error(ratio: Estimate, error: float, freedom: float, level: float = LEVEL) -> Estimate:
    """The ratio with this error between repeats, and the interval that follows from it."""
    factor = math.exp(_reach(error, freedom, ratio.inside or 0.0, level))
    low, high = ratio.value / factor, ratio.value * factor
    return replace(ratio, low=low, high=high, error=error, freedom=freedom)


def told_apart(p: float | None) -> bool:
    """True if two cells differ: the one rule of answers, tables and `runner compare`. `p` is adjusted for all questions of its table."""
    return p is not None and p < ALPHA


def p_value(ratio: Estimate, level: float = LEVEL) -> float | None:
    """The chance of a ratio at least so far from 1, were the truth 1; null where repeats do not say what chance is.

    The ratio's interval is one of `level`. One that was widened over several levels answers for the level nearest to 1.
    """
    if ratio.error is None or ratio.freedom is None or ratio.inside is None or ratio.low is None or ratio.high is None:
        return None
    if max(ratio.error, ratio.inside) == 0:
        return None
    reach = _reach(ratio.error, ratio.freedom, ratio.inside, level)
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
