"""The verdict on a measured cell beside its reference: one-sided tests on the ratio of their step times. Pure and deterministic.

The question is whether the cell is as fast as its reference within a margin, so the tests are of equivalence: two one-sided tests,
each at 5 % (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987). They look at the 90 % interval of the ratio. Inside the margin the cell
is ok, and wholly beyond the margin it is slow or fast. Where the interval reaches across the margin on the side of fast alone, the cell is
ok or fast: not-slower, which passes too (non-inferiority, the test on the side of slow). Where it reaches across the margin on the
side of slow, the cell is unsure.

A machine is not the same on two days. All that one run measures shares its session: heat, neighbours, the driver's state. Repeats of one
run do not show how far sessions differ, and more of them do not divide it. So the variance of a side has two parts: that between
repeats, over their number, and that between sessions, over theirs. A measurement is one session; a reference has as many as it was
saved from runs.

Both parts begin with a prior, which counts as PRIOR_FREEDOM observations. A single run can then be judged beside another one. A
reference of several runs measures how far sessions differ, and outweighs the prior.

Simulated with repeats that differ by 1 %, three beside a reference of one session and five repeats, and sessions that differ by 0, 1, 2
and 3 %: a healthy GPU is called slow in 0, 0, 0.3 and 3.3 % and passes in 99, 87, 73 and 66 %. A healthy CPU is called slow in 0.1 % at
most and passes in 99, 84, 72 and 65 %. One session a side does not show it where sessions differ by more than the prior says. With 3 %,
a GPU's cell at the margin itself is called slow in 24 %, and in 7 % beside a reference of five sessions. (The long form of
tests/unit/runner/verify/test_sessions.py makes these figures.)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from runner.results.statistics import REPEAT_DEVIATION, SEED, SESSION_DEVIATION, Array, median_draws, of_kind
from runner.results.student import student_quantile

CellVerdict = Literal["ok", "slow", "fast", "not-slower", "unsure", "not-comparable", "no-reference", "wrong", "failed"]

PASS: frozenset[CellVerdict] = frozenset({"ok", "fast", "not-slower"})
FAIL: frozenset[CellVerdict] = frozenset({"slow", "wrong", "failed"})

# Of each of the two one-sided tests.
ALPHA = 0.05
LEVEL = 1 - 2 * ALPHA  # of the interval that both look at

# A gap below this is no reason to look for a fault. The CPU's margin is wider: its repeats differ more, since neighbours share it.
MARGINS = {"cuda": 0.05, "cpu": 0.08}

# Of each of the two priors, REPEAT_DEVIATION and SESSION_DEVIATION.
PRIOR_FREEDOM = 4.0

# Repeats and sessions beyond these are advice that nobody can follow.
MOST_ADVISED = 50
MOST_SESSIONS = 20

# What was measured in one session: the step times of each repeat's windows.
Session = Sequence[Array]


@dataclass(frozen=True)
class Scatter:
    """A standard deviation of the log step time, and how well it is known."""

    deviation: float
    freedom: float  # degrees of freedom, with those of the prior
    observed: int  # of these, those that were measured; 0: the deviation is assumed


@dataclass(frozen=True)
class Ratio:
    """Measured step time over the reference's, with its 90 % interval."""

    value: float
    low: float
    high: float
    measured_seconds: float  # of a step: the geometric mean of the repeats' medians
    reference_seconds: float  # the value is the quotient of the two
    between: Scatter  # of the repeats of a session; at least what their windows show
    sessions: Scatter
    measured_repeats: int
    measured_sessions: int
    reference_repeats: int
    reference_sessions: int


def ratio_to_reference(measured: Sequence[Session], reference: Sequence[Session], device_kind: str) -> Ratio:
    """The ratio of a cell to its reference, from the sessions of either. Every repeat has windows, all positive."""
    sides = (measured, reference)
    logs = [[np.log([np.median(repeat) for repeat in session]) for session in side] for side in sides]
    between = _between(logs, of_kind(REPEAT_DEVIATION, device_kind))
    sessions = _sessions(logs, between, of_kind(SESSION_DEVIATION, device_kind))
    # Windows can scatter so much that a median of them is less sure than repeats are alike. Then the windows' variance counts.
    within = max(_within([repeat for session in side for repeat in session]) for side in sides)
    between = replace(between, deviation=max(between.deviation, math.sqrt(within)))
    shares = sum(map(_share_of_repeats, sides)), sum(1 / len(side) for side in sides)
    reach = _reach(between, sessions, *shares)
    means = [float(np.mean([session.mean() for session in side])) for side in logs]
    value = means[0] - means[1]
    return Ratio(
        value=math.exp(value),
        low=math.exp(value - reach),
        high=math.exp(value + reach),
        measured_seconds=math.exp(means[0]),
        reference_seconds=math.exp(means[1]),
        between=between,
        sessions=sessions,
        measured_repeats=sum(map(len, measured)),
        measured_sessions=len(measured),
        reference_repeats=sum(map(len, reference)),
        reference_sessions=len(reference),
    )


def _between(sides: Sequence[Sequence[Array]], prior: float) -> Scatter:
    """How far repeats of one session differ, from all sessions of both sides."""
    sessions = [session for side in sides for session in side]
    squares = sum(float(np.sum((session - session.mean()) ** 2)) for session in sessions)
    return _moderated(prior, squares, sum(len(session) - 1 for session in sessions))


def _sessions(sides: Sequence[Sequence[Array]], between: Scatter, prior: float) -> Scatter:
    """How far sessions differ beyond what their repeats explain."""
    squares, observed = 0.0, 0
    for side in sides:
        means = np.array([session.mean() for session in side])
        of_repeats = between.deviation**2 * float(np.mean([1 / len(session) for session in side]))
        squares += float(np.sum((means - means.mean()) ** 2)) - (len(side) - 1) * of_repeats
        observed += len(side) - 1
    return _moderated(prior, max(0.0, squares), observed)


def _moderated(prior: float, squares: float, observed: int) -> Scatter:
    """A deviation from a sum of squares and a prior (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004).

    Where the measured variance is k times the prior's, the prior is wrong, and counts as PRIOR_FREEDOM / k observations. Simulated with
    repeats that differ by 5 % instead of the prior's 1 %, three beside one, at the margin itself: slow in 8 % instead of 15 %.
    """
    weight = PRIOR_FREEDOM * (min(1.0, prior**2 * observed / squares) if squares > 0 else 1.0)
    freedom = weight + observed
    return Scatter(math.sqrt((weight * prior**2 + squares) / freedom), freedom, observed)


def _share_of_repeats(side: Sequence[Session]) -> float:
    """What a side's mean has of the variance between repeats."""
    return sum(1 / len(session) for session in side) / len(side) ** 2


def _reach(between: Scatter, sessions: Scatter, of_repeats: float, of_sessions: float) -> float:
    """How far the interval reaches to both sides, as a logarithm; the degrees of freedom are Satterthwaite's."""
    parts = [
        (between.deviation**2 * of_repeats, between.freedom),
        (sessions.deviation**2 * of_sessions, sessions.freedom),
    ]
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / freedom for part, freedom in parts)
    return student_quantile(1 - ALPHA, max(1.0, freedom)) * math.sqrt(variance)


def _within(side: Sequence[Array]) -> float:
    """The mean variance of a repeat's log median, by a seeded bootstrap over its windows."""
    rng = np.random.default_rng(SEED)
    return float(np.mean([np.var(np.log(median_draws(repeat, rng, draws=1000))) for repeat in side]))


def verdict_of(ratio: Ratio, margin: float) -> CellVerdict:
    """ok, slow, fast, not-slower or unsure, by the place of the interval. The margin is the same factor up and down."""
    high, low = 1 + margin, 1 / (1 + margin)
    if ratio.high < low:
        return "fast"
    if ratio.high < high:
        return "ok" if low < ratio.low else "not-slower"
    return "slow" if ratio.low > high else "unsure"


def repeats_to_tell(ratio: Ratio, margin: float) -> int | None:
    """The fewest repeats that would decide an unsure ratio, if they scatter as those that were measured. None: too many."""

    def decides(count: int) -> bool:
        more = replace(ratio.between, freedom=ratio.between.freedom + count - ratio.measured_repeats)
        of_sessions = 1 / ratio.measured_sessions + 1 / ratio.reference_sessions
        reach = _reach(more, ratio.sessions, 1 / count + 1 / ratio.reference_repeats, of_sessions)
        return reach < _distance(ratio, margin)

    return _fewest(range(ratio.measured_repeats + 1, MOST_ADVISED + 1), decides)


def sessions_to_tell(ratio: Ratio, margin: float) -> int | None:
    """The fewest sessions of a reference that would decide an unsure ratio, if they differ as is known so far. None: too many."""
    each = ratio.reference_repeats / ratio.reference_sessions

    def decides(count: int) -> bool:
        extra = count - ratio.reference_sessions
        between = replace(ratio.between, freedom=ratio.between.freedom + extra * (each - 1))
        sessions = replace(ratio.sessions, freedom=ratio.sessions.freedom + extra)
        of_repeats = 1 / ratio.measured_repeats + 1 / (count * each)
        reach = _reach(between, sessions, of_repeats, 1 / ratio.measured_sessions + 1 / count)
        return reach < _distance(ratio, margin)

    return _fewest(range(ratio.reference_sessions + 1, MOST_SESSIONS + 1), decides)


def _fewest(counts: range, decides: Callable[[int], bool]) -> int | None:
    """The first count that decides; every larger one does as well."""
    at = bisect_left(counts, True, key=decides)
    return counts[at] if at < len(counts) else None


def _distance(ratio: Ratio, margin: float) -> float:
    """How far a ratio lies from the margin on the slow side, as a logarithm."""
    return abs(math.log1p(margin) - math.log(ratio.value))


def excused(verdict: CellVerdict, differs: bool) -> CellVerdict:
    """The verdict where choices differ (versions, driver, ECC): they may be the reason for a gap, so a gap says nothing."""
    return "not-comparable" if differs and verdict in ("slow", "fast", "not-slower", "unsure") else verdict


def exit_code(verdicts: Sequence[CellVerdict]) -> int:
    """0: every cell passes; 1: at least one fails; 2: none fails, but not every cell could be judged, or there is no cell."""
    if any(verdict in FAIL for verdict in verdicts):
        return 1
    return 0 if verdicts and all(verdict in PASS for verdict in verdicts) else 2
