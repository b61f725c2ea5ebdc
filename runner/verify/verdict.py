"""The verdict on a measured cell beside its reference: one-sided tests on the ratio of their step times. Pure and deterministic.

The question is whether the cell is as fast as its reference within a margin, so the tests are of equivalence: two one-sided tests,
each at 5 % (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987). They look at the 90 % interval of the ratio. Inside the margin the cell
is ok, and wholly beyond the margin it is slow or fast. Where the interval reaches across the margin on the side of fast alone, the cell is
ok or fast: not-slower, which passes too (non-inferiority, the test on the side of slow). Where it reaches across the margin on the
side of slow, the cell is unsure: more repeats would tell.

`runner compare` asks whether two cells differ, so it looks at the 95 % interval. The estimator of the ratio is the same
(statistics.log_ratio). Here it has a prior for the variance between repeats, which counts as PRIOR_FREEDOM further observations: a few
repeats say little about that variance, and an installation can be judged by one repeat a side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from runner.results.statistics import SEED, Array, log_ratio, median_draws
from runner.results.student import student_quantile

CellVerdict = Literal["ok", "slow", "fast", "not-slower", "unsure", "not-comparable", "no-reference", "wrong", "failed"]

PASS: frozenset[CellVerdict] = frozenset({"ok", "fast", "not-slower"})
FAIL: frozenset[CellVerdict] = frozenset({"slow", "wrong", "failed"})

# Of each of the two one-sided tests.
ALPHA = 0.05
LEVEL = 1 - 2 * ALPHA  # of the interval that both look at

# A gap below this is no reason to look for a fault. The CPU's margin is wider: its repeats differ more, since neighbours share it.
MARGINS = {"cuda": 0.05, "cpu": 0.08}

# The prior: the standard deviation of the log median step time between repeats of one cell on a quiet machine. It is an assumption,
# not a measurement; a few repeats outweigh it.
PRIOR_BETWEEN = {"cuda": 0.01, "cpu": 0.02}
PRIOR_FREEDOM = 4.0

# Repeats beyond this are advice that nobody can follow.
MOST_ADVISED = 50


@dataclass(frozen=True)
class Ratio:
    """Measured step time over the reference's, with its 90 % interval."""

    value: float
    low: float
    high: float
    between: float  # the standard deviation between repeats, of the logarithm, with the prior in it
    freedom: float
    measured_repeats: int
    reference_repeats: int


def ratio_to_reference(measured: Sequence[Array], reference: Sequence[Array], device_kind: str) -> Ratio:
    """The ratio of a cell to its reference, from the step times of the repeats; every repeat has windows, all positive."""
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
    distance = abs(math.log1p(margin) - math.log(ratio.value))
    sides = 1 / ratio.measured_repeats + 1 / ratio.reference_repeats
    deviation = math.log(ratio.high / ratio.value) / student_quantile(1 - ALPHA, ratio.freedom) / math.sqrt(sides)
    for count in range(ratio.measured_repeats + 1, MOST_ADVISED + 1):
        freedom = ratio.freedom + count - ratio.measured_repeats
        reach = student_quantile(1 - ALPHA, freedom) * deviation * math.sqrt(1 / count + 1 / ratio.reference_repeats)
        if reach < distance:
            return count
    return None


def excused(verdict: CellVerdict, differs: bool) -> CellVerdict:
    """The verdict where choices differ (versions, driver, ECC): they may be the reason for a gap, so a gap says nothing."""
    return "not-comparable" if differs and verdict in ("slow", "fast", "not-slower", "unsure") else verdict


def exit_code(verdicts: Sequence[CellVerdict]) -> int:
    """0: every cell passes; 1: at least one fails; 2: none fails, but not every cell could be judged, or there is no cell."""
    if any(verdict in FAIL for verdict in verdicts):
        return 1
    return 0 if verdicts and all(verdict in PASS for verdict in verdicts) else 2
