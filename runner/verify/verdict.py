"""The verdict on a measured cell beside its reference, from the ratio of their step times. Pure and deterministic.

The question is whether the cell is as fast as its reference within a margin. There are two ways to a verdict. The first is two one-sided
tests, each at 5 % (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987): the 90 % interval of the ratio lies on one side of the margin. The
second is for machines whose repeats differ so much that no sensible number of them makes the interval that narrow. It asks which of two
the ratio is: equal, or beyond twice the margin. The ratio must be nearer to one of them than to the margin, and its interval must exclude
the other. So a cell is slow where equal is excluded and the ratio is well beyond the margin, and it passes where twice the margin is
excluded and the ratio is well inside. All cells of a verification, and all of them together, share FAMILY for the second way to slow: a
healthy machine of many cells must not fail. A cell that passes is ok, fast, or, where the fast side is not told, not-slower. Everything
else is open.

A machine is not the same on two days. All that one run measures shares its session: heat, neighbours, the driver's state. Repeats of one
run do not show how far sessions differ, and more of them do not divide it. So the variance of a side has two parts: that between
repeats, over their number, and that between sessions, over theirs. A measurement is one session; a reference has as many as it was
saved from runs.

Both parts begin with a prior, which counts as four observations. A single run can then be judged beside another one. The cells of a
verification share what they show of both. A reference of several runs measures how far sessions differ, as well as its repeats let it,
and outweighs the prior.

The level of a repeat is the mean of its windows: stalls count. A second question is asked where the ratio leaves the verdict open: how
much longer than its typical step, the median of its windows, the mean step of the cell is, against the same of the reference. Neither
sessions nor processes move that, so stalls are told on machines whose repeats differ by more than the margin.

One repeat may be disturbed. So of FEWEST_TO_TRIM repeats or more of a session the fastest and the slowest do not count: a trimmed mean,
whose variance comes from the repeats with these two moved to their neighbours (Yuen, Biometrika 61, 1974).

Simulated as the command runs: four cells on a CPU, five repeats, nine of an open cell, 27 of one that looks slow, beside one session of
three repeats. Where repeats differ by 10 % and sessions by 2 %, a healthy cell passes in 63 %, and gets no answer, alone or with the
others, in 17 %; a healthy machine fails in 3 %. An installation of which all cells are 20 % slow fails in 96 %. Where repeats differ by
1 %, a healthy cell passes in 90 %, and all 20 % slow fail. docs/verify.md has the other worlds, and the long form of
tests/unit/runner/verify/test_sessions.py simulates them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from reports.wording import times
from runner.errors import one_code
from runner.results.rank.blocks import Scatter, moderated_scatter, more_stalled
from runner.results.statistics import (
    REPEAT_DEVIATION,
    SESSION_DEVIATION,
    Array,
    log_levels,
    of_kind,
    timings,
)
from runner.results.student import student_quantile
from runner.verify.causes import per_cent

CellVerdict = Literal["ok", "slow", "fast", "not-slower", "open", "not-comparable", "no-reference", "wrong", "failed"]

PASS: frozenset[CellVerdict] = frozenset({"ok", "fast", "not-slower"})
FAIL: frozenset[CellVerdict] = frozenset({"slow", "wrong", "failed"})

# Of each of the two one-sided tests.
ALPHA = 0.05
LEVEL = 1 - 2 * ALPHA  # of the interval that both look at

# A gap below this is no reason to look for a fault. The CPU's margin is wider: its repeats differ more, since neighbours share it.
MARGINS = {"cuda": 0.05, "cpu": 0.08}

# The chance that a healthy machine fails by the second way, over all cells and all of them together. Repeats with heavy tails take the
# rest of 5 % (simulated).
FAMILY = 0.042
FEWEST_TOGETHER = 2  # cells that are judged as one as well

# A cell's variance of repeats is drawn towards that of the others by at most so many observations of theirs, and by fewer where it is
# more than so many times smaller.
MOST_BORROWED = 32.0
QUIETER = 10.0

# Of fewer repeats none can be left out.
FEWEST_TO_TRIM = 5

# Repeats and sessions beyond these are advice that nobody can follow.
MOST_ADVISED = 50
MOST_SESSIONS = 20

# The measurement of one session: the step times of each repeat's windows.
Session = Sequence[Array]
Sides = tuple[Sequence[Session], Sequence[Session]]  # of a cell: measured, and its reference's


@dataclass(frozen=True)
class VariancePart:
    """A part of the variance of a ratio's logarithm."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class Ratio:
    """Measured step time over the reference's, with its 90 % interval."""

    value: float
    low: float
    high: float
    measured_seconds: float  # of a step: the trimmed geometric mean of the repeats' levels
    reference_seconds: float  # the value is the quotient of the two
    between: Scatter  # of the repeats of a session; at least what their windows show
    between_sessions: Scatter
    measured_repeats: int
    measured_sessions: int
    reference_repeats: int
    reference_sessions: int
    of_repeats: VariancePart
    of_sessions: VariancePart
    # How many times as much longer than its typical step the mean step is, against the reference: the ratio's own form, with the end of
    # its 90 % interval that lies nearer to 1. None where the reference holds no windows that could show it.
    stalled: float | None = None
    stalled_low: float | None = None


def ratio_to_reference(measured: Sequence[Session], reference: Sequence[Session], device_kind: str) -> Ratio:
    """The ratio of a cell to its reference, from the sessions of either. Every repeat has windows, all positive."""
    return ratios_to_references([(measured, reference)], device_kind)[0]


def ratios_to_references(cells: Sequence[Sides], device_kind: str) -> list[Ratio]:
    """The same of several cells, measured and reference, which show together how far repeats and sessions differ."""
    logs = [[[log_levels(session) for session in side] for side in sides] for sides in cells]
    shown = [_shown(sides) for sides in logs]
    between = [_between(shown, at, of_kind(REPEAT_DEVIATION, device_kind)) for at in range(len(cells))]
    sessions = _sessions(logs, between, of_kind(SESSION_DEVIATION, device_kind))
    return [_ratio(*of_cell, sessions) for of_cell in zip(cells, logs, between, strict=True)]


def _ratio(sides: Sides, logs: Sequence[Sequence[Array]], between: Scatter, sessions: Scatter) -> Ratio:
    measured, reference = sides
    # Windows can scatter so much that their mean is less sure than repeats are alike. Then the windows' variance counts.
    within = max(_within([repeat for session in side for repeat in session]) for side in sides)
    between = replace(between, deviation=max(between.deviation, math.sqrt(within)))
    parts = _parts(between, sessions, sum(map(_share_of_repeats, sides)), sum(1 / len(side) for side in sides))
    means = [float(np.mean([_middle(session) for session in side])) for side in logs]
    value, reach = means[0] - means[1], reach_of(parts)
    stalled = _stalled(sides)
    return Ratio(
        value=math.exp(value),
        low=math.exp(value - reach),
        high=math.exp(value + reach),
        measured_seconds=math.exp(means[0]),
        reference_seconds=math.exp(means[1]),
        between=between,
        between_sessions=sessions,
        measured_repeats=sum(map(len, measured)),
        measured_sessions=len(measured),
        reference_repeats=sum(map(len, reference)),
        reference_sessions=len(reference),
        of_repeats=parts[0],
        of_sessions=parts[1],
        stalled=stalled and math.exp(stalled[0]),
        stalled_low=stalled and math.exp(stalled[1]),
    )


def _stalled(sides: Sides) -> tuple[float, float] | None:
    """The logarithm of mean step over typical step beside the reference's, and the lower end of its 90 % interval."""
    # The repeats of an index of machines are single numbers.
    if all(float(np.ptp(repeat)) == 0.0 for session in sides[1] for repeat in session):
        return None
    more = more_stalled(*sides)
    return more.value, more.value - student_quantile(1 - ALPHA, more.freedom) * more.error


def _middle(repeats: Array) -> float:
    """The mean, of FEWEST_TO_TRIM or more without the lowest and the highest."""
    return float(np.mean(np.sort(repeats)[1:-1] if len(repeats) >= FEWEST_TO_TRIM else repeats))


def _squares(repeats: Array) -> float:
    """The squares about the mean, of FEWEST_TO_TRIM or more with the lowest and the highest moved to their neighbours."""
    if len(repeats) >= FEWEST_TO_TRIM:
        ordered = np.sort(repeats)
        repeats = np.clip(repeats, ordered[1], ordered[-2])
    return float(np.sum((repeats - np.mean(repeats)) ** 2))


def _observed(repeats: float) -> float:
    """The expected _squares of so many normal repeats of variance 1. Trimmed: fitted to a simulation, within 2 % of it."""
    return repeats - 1 if repeats < FEWEST_TO_TRIM else repeats - 4.3 + 3.4 / repeats


def _share(repeats: float) -> float:
    """The variance of the _middle of so many normal repeats of variance 1. Trimmed: fitted to a simulation, within 2 % of it."""
    return 1 / repeats if repeats < FEWEST_TO_TRIM else 1 / (repeats - 0.5)


def _shown(sides: Sequence[Sequence[Array]]) -> tuple[float, float]:
    """The squares of all sessions of a cell, and how many observations they are of how far repeats differ."""
    sessions = [session for side in sides for session in side]
    return sum(map(_squares, sessions)), sum(_observed(len(session)) for session in sessions)


def _between(shown: Sequence[tuple[float, float]], at: int, prior: float) -> Scatter:
    """How far repeats of a session of one cell differ, drawn towards how far those of the other cells do.

    The others count less as the cell's own repeats contradict them. A cell that looks somewhat quieter is no contradiction: where one
    repeat in three is slow, five may all be fast.
    """
    squares, observed = shown[at]
    others = [*shown[:at], *shown[at + 1 :]]
    if not others:
        return moderated_scatter(prior, squares, observed)
    usual = moderated_scatter(prior, sum(each for each, _ in others), sum(each for _, each in others))
    louder = squares / (observed * usual.deviation**2) if observed else 1.0
    counts = min(1.0, 1 / louder if louder else math.inf, QUIETER * louder)
    return moderated_scatter(usual.deviation, squares, observed, counts * min(MOST_BORROWED, usual.freedom))


def _sessions(cells: Sequence[Sequence[Sequence[Array]]], between: Sequence[Scatter], prior: float) -> Scatter:
    """How far sessions differ beyond what their repeats explain, from all sides that have several.

    The means of few repeats that differ much say little about sessions. So a side counts as far as the prior exceeds what its repeats do
    to a session's mean. All cells share their sessions, so more cells are no more observations: they only see these better.
    """
    excess, degrees, of_repeats = [], [], []
    for sides, scatter in zip(cells, between, strict=True):
        for side in (side for side in sides if len(side) > 1):
            means = np.array([_middle(session) for session in side])
            of_repeats.append(scatter.deviation**2 * float(np.mean([_share(len(session)) for session in side])))
            degrees.append(len(side) - 1)
            excess.append(float(np.sum((means - means.mean()) ** 2)) - degrees[-1] * of_repeats[-1])
    if not excess:
        return moderated_scatter(prior, 0.0, 0.0)
    shares = (prior**2 / (prior**2 + np.array(of_repeats))) ** 2
    shares /= shares.sum()
    squares, degree, noise = (float(shares @ values) for values in (excess, degrees, of_repeats))
    known = prior**4 / (prior**4 + (2 * prior**2 * noise + noise**2) * float(shares @ shares))
    squares, observed = known * max(0.0, squares), known * degree
    # Little evidence cannot contradict the prior: only for that its missing part is taken to be as the prior says.
    weight = moderated_scatter(prior, squares + (degree - observed) * prior**2, degree).freedom - degree
    freedom = weight + observed
    return Scatter(math.sqrt((weight * prior**2 + squares) / freedom), freedom, observed)


def _share_of_repeats(side: Sequence[Session]) -> float:
    """The part of the variance between repeats that a side's mean has."""
    return sum(_share(len(session)) for session in side) / len(side) ** 2


def _parts(
    between: Scatter, sessions: Scatter, of_repeats: float, of_sessions: float
) -> tuple[VariancePart, VariancePart]:
    return (
        VariancePart(between.deviation**2 * of_repeats, between.freedom),
        VariancePart(sessions.deviation**2 * of_sessions, sessions.freedom),
    )


def reach_of(parts: Sequence[VariancePart], alpha: float = ALPHA) -> float:
    """How far the interval reaches to both sides, as a logarithm; the degrees of freedom are Satterthwaite's."""
    variance = sum(part.variance for part in parts)
    freedom = variance**2 / sum(part.variance**2 / part.freedom for part in parts)
    return student_quantile(1 - alpha, max(1.0, freedom)) * math.sqrt(variance)


def _within(side: Sequence[Array]) -> float:
    """The mean variance of a repeat's log level, as its windows show it."""
    return float(np.mean([timings(repeat).error ** 2 for repeat in side]))


def questions_of(runs: Iterable[Hashable]) -> int:
    """How many ratios are judged together, from the run and kind of device of each cell: the cells, and the whole of each run."""
    cells = Counter(runs)
    return sum(cells.values()) + sum(count >= FEWEST_TOGETHER for count in cells.values())


def verdict_of(ratio: Ratio, margin: float, questions: int = 1) -> CellVerdict:
    """ok, slow, fast, not-slower or open. The margin is the same factor up and down; so many `questions` share FAMILY."""
    verdict = verdict_from(math.log(ratio.value), (ratio.of_repeats, ratio.of_sessions), margin, questions)
    return "slow" if verdict == "open" and stalls_alone(ratio, margin) else verdict


def stalls_alone(ratio: Ratio, margin: float) -> bool:
    """True if the stalls that the reference has not make the cell slower than the margin by themselves."""
    return ratio.stalled_low is not None and ratio.stalled_low > 1 + margin and ratio.value > 1 + margin


def verdict_from(log: float, parts: Sequence[VariancePart], margin: float, questions: int = 1) -> CellVerdict:
    """The same from the logarithm of a ratio and the parts of its variance."""
    limit, reach = math.log1p(margin), reach_of(parts)
    slow_side = _side(log, reach, limit, reach_of(parts, FAMILY / questions))
    if slow_side >= 0:
        return "slow" if slow_side else "open"
    fast_side = _side(-log, reach, limit, reach)
    return "fast" if fast_side > 0 else "ok" if fast_side else "not-slower"


def meaning(verdict: CellVerdict, ratio: float, ends: tuple[float, float], margin: float) -> str:
    """The meaning of the verdict on a ratio with this interval, beside the margin: a clause without its subject."""
    share, twice = f"{100 * margin:g} %", per_cent((1 + margin) ** 2 - 1, 3)
    low, high = ends
    if verdict == "slow":
        if low > 1 + margin:
            return f"slower than the reference by more than {share}"
        return f"slower than the reference: equal is ruled out, and {times(ratio)} times as long is well beyond {share}"
    if verdict == "fast":
        if high < 1 / (1 + margin):
            return f"faster than the reference by more than {share}"
        return f"faster than the reference: equal is ruled out, and {times(ratio)} times as fast is well beyond {share}"
    if verdict == "open":
        if low > 1:
            return f"slower for certain; the margin of {share} lies inside the interval"
        return f"the interval reaches across the margin of {share}"
    if high >= 1 + margin:
        return f"well within {share} of the reference by its ratio, and slower by {twice} or more is ruled out"
    if verdict == "ok":
        return f"within {share} of the reference"
    return f"not slower than the reference by more than {share}, and maybe faster by more"


def _side(log: float, reach: float, limit: float, reach_beyond: float) -> int:
    """On which side of the limit a ratio is: -1 below, 1 above, 0 open. `reach_beyond` is that of the second way to above."""
    gap = log - limit
    far = abs(gap) > limit / 2 and (reach_beyond if gap > 0 else reach) < limit + abs(gap)
    return (1 if gap > 0 else -1) if far or reach < abs(gap) else 0


def repeats_to_tell(ratio: Ratio, margin: float) -> int | None:
    """The fewest repeats that would decide an open ratio, if they scatter as those that were measured. None: too many."""

    def decides(count: int) -> bool:
        return _decided(ratio, _with_repeats(ratio, count), margin)

    return next(filter(decides, range(ratio.measured_repeats + 1, MOST_ADVISED + 1)), None)


def narrows(ratio: Ratio, repeats: int) -> bool:
    """True if `repeats` would make the interval shorter by at least a tenth. Otherwise the reference or the sessions decide."""
    now = math.log(ratio.high / ratio.low) / 2
    return repeats > ratio.measured_repeats and reach_of(_with_repeats(ratio, repeats)) <= 0.9 * now


def beyond_doubt(ratio: Ratio, margin: float) -> bool:
    """True if the ratio would be above the margin with an interval of twice the width, too."""
    return ratio.low**2 / ratio.value > 1 + margin


def _with_repeats(ratio: Ratio, count: int) -> tuple[VariancePart, VariancePart]:
    """The parts of the variance if the one session that was measured had so many repeats."""
    share = _share(count) - _share(ratio.measured_repeats)
    variance = ratio.of_repeats.variance + share * ratio.between.deviation**2
    freedom = ratio.of_repeats.freedom + _observed(count) - _observed(ratio.measured_repeats)
    return VariancePart(variance, freedom), ratio.of_sessions


def sessions_to_tell(ratio: Ratio, margin: float) -> int | None:
    """The fewest sessions of a reference that would decide an open ratio, if they differ as is known so far. None: too many."""
    each = ratio.reference_repeats / ratio.reference_sessions

    def decides(count: int) -> bool:
        extra = count - ratio.reference_sessions
        between = replace(ratio.between, freedom=ratio.between.freedom + extra * _observed(each))
        sessions = replace(ratio.between_sessions, freedom=ratio.between_sessions.freedom + extra)
        of_repeats = _share(ratio.measured_repeats) + _share(each) / count
        return _decided(ratio, _parts(between, sessions, of_repeats, 1 / ratio.measured_sessions + 1 / count), margin)

    return next(filter(decides, range(ratio.reference_sessions + 1, MOST_SESSIONS + 1)), None)


def _decided(ratio: Ratio, parts: Sequence[VariancePart], margin: float) -> bool:
    """True if this ratio would be on one side of the margin on the slow side, if these were the parts of its variance."""
    reach = reach_of(parts)
    return _side(math.log(ratio.value), reach, math.log1p(margin), reach) != 0


def excused(verdict: CellVerdict, differs: bool) -> CellVerdict:
    """The verdict where choices differ (versions, driver, ECC): they may be the reason for a gap, so a gap says nothing."""
    return "not-comparable" if differs and verdict in ("slow", "fast", "not-slower", "open") else verdict


def exit_code(verdicts: Sequence[CellVerdict]) -> int:
    """0: every cell passes; 1: at least one fails; 3: none fails, but not every cell could be judged, or there is no cell."""
    passes = verdicts and all(verdict in PASS for verdict in verdicts)
    return one_code(any(verdict in FAIL for verdict in verdicts), not passes)
