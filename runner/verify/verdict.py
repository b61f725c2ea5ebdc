"""The verdict on a measured cell beside its reference: one-sided tests on the ratio of their step times. Pure and deterministic.

The ratio is equivalent to 1 when its interval lies inside the margin (two one-sided tests, each at 5 %: Schuirmann, J.
Pharmacokinet. Biopharm. 15, 1987; the interval is the 90 % one). It is slow or fast when the interval lies wholly beyond the
margin. Where it reaches across the margin on the side of fast alone, it is ok or fast, and cannot be said to be which: not-slower, which
passes as both do (non-inferiority, the one test on the side of slow). Across that on the side of slow it is unsure: more repeats
would tell.

How much runs of one cell differ matters more than how windows of one run scatter, and a few repeats say little about it. So the
variance between repeats, pooled over both sides, is moderated by a prior (as in Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004): the
prior counts as PRIOR_FREEDOM further observations. One repeat a side is then possible, and honest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from runner.results.statistics import SEED, Array, log_ratio, median_draws
from runner.results.student import student_quantile

Kind = Literal["ok", "slow", "fast", "not-slower", "unsure", "not-comparable", "no-reference", "wrong", "failed"]

PASS: frozenset[Kind] = frozenset({"ok", "fast", "not-slower"})
FAIL: frozenset[Kind] = frozenset({"slow", "wrong", "failed"})

ALPHA = 0.05  # of each of the two one-sided tests

# A gap below this is no reason to look for a fault. The CPU's is wider: its repeats differ more, and a neighbour's load is in them.
MARGINS = {"cuda": 0.05, "cpu": 0.08}

# Standard deviation of the log median step time between repeats of one cell on a quiet machine: what is reckoned with before any
# repeat was seen. An assumption, not a measurement; a few repeats outweigh it.
PRIOR_BETWEEN = {"cuda": 0.01, "cpu": 0.02}
PRIOR_FREEDOM = 4.0

# Repeats beyond this are advice that nobody can follow.
MOST_ADVISED = 50


@dataclass(frozen=True)
class Ratio:
    """Measured step time over the reference's, with the 90 % interval that the two one-sided tests look at."""

    value: float
    low: float
    high: float
    between: float  # the standard deviation between repeats that was reckoned with, of the logarithm
    freedom: float
    measured_repeats: int
    reference_repeats: int


def ratio(measured: Sequence[Array], reference: Sequence[Array], device_kind: str) -> Ratio:
    """The ratio of two cells from the step times of each one's repeats; every repeat has windows, all positive."""
    log = log_ratio(measured, reference, PRIOR_BETWEEN[device_kind], PRIOR_FREEDOM)
    # Windows can scatter so much that a median of them is less sure than repeats are alike. Then the windows' variance counts.
    variance = sum(max(log.variance, _within(side)) / len(side) for side in (measured, reference))
    reach = student_quantile(1 - ALPHA, log.freedom) * math.sqrt(variance)
    return Ratio(
        value=math.exp(log.value),
        low=math.exp(log.value - reach),
        high=math.exp(log.value + reach),
        between=math.sqrt(log.variance),
        freedom=log.freedom,
        measured_repeats=len(measured),
        reference_repeats=len(reference),
    )


def _within(side: Sequence[Array]) -> float:
    """The mean variance of a repeat's log median, by a seeded bootstrap over its windows."""
    rng = np.random.default_rng(SEED)
    return float(np.mean([np.var(np.log(median_draws(repeat, rng, draws=1000))) for repeat in side]))


def judge(found: Ratio, margin: float) -> Kind:
    """ok, slow, fast, not-slower or unsure: where the interval lies to the margin, which is the same factor up and down."""
    high, low = 1 + margin, 1 / (1 + margin)
    if found.high < low:
        return "fast"
    if found.high < high:
        return "ok" if low < found.low else "not-slower"
    return "slow" if found.low > high else "unsure"


def repeats_to_tell(found: Ratio, margin: float) -> int | None:
    """The fewest repeats that would decide an unsure ratio, if they lie and scatter as those that were measured; None: too many."""
    distance = abs(math.log1p(margin) - math.log(found.value))
    sides = 1 / found.measured_repeats + 1 / found.reference_repeats
    deviation = math.log(found.high / found.value) / student_quantile(1 - ALPHA, found.freedom) / math.sqrt(sides)
    for count in range(found.measured_repeats + 1, MOST_ADVISED + 1):
        freedom = found.freedom + count - found.measured_repeats
        reach = student_quantile(1 - ALPHA, freedom) * deviation * math.sqrt(1 / count + 1 / found.reference_repeats)
        if reach < distance:
            return count
    return None


def excused(kind: Kind, differs: bool) -> Kind:
    """The verdict where choices differ (versions, driver, ECC ...): a gap may be theirs, so it is none of the installation's."""
    return "not-comparable" if differs and kind in ("slow", "fast", "not-slower", "unsure") else kind


def exit_code(kinds: Sequence[Kind]) -> int:
    """0: every cell passes; 1: at least one fails; 2: none fails, and not all could be told, or there was none."""
    if any(kind in FAIL for kind in kinds):
        return 1
    return 0 if kinds and all(kind in PASS for kind in kinds) else 2
