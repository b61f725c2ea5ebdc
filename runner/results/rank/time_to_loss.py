"""The training time until a held-out loss stays below a stated level: of one seed, and the median over seeds.

Pure functions of numbers. A seed that did not get there is not dropped: its time is longer than its training lasted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

# The unit of a metric that is a loss: the mean cross-entropy of the held-out part.
LOSS_UNIT = "bit"

# From so many seeds on the shortest and the longest time are a 95 % interval of the median (runner.results.statistics.fewest_windows).
FEWEST_SEEDS = 6

# reached: from some evaluation on, each is below the level. below: so was the first evaluation, so the time is not known.
# touched: it was below and rose again. above: it never was below. failed: its repeat did not end well, or it
# recorded no time, so nothing is known of it.
End = Literal["reached", "below", "touched", "above", "failed"]


@dataclass(frozen=True)
class SeedTime:
    """One seed. Times are seconds of training: the first step and the warm-up count, evaluations do not."""

    seed: int
    end: End
    # Of the first evaluation from which the loss stays below the level. Of a seed that has none, how long the training lasted; 0 of a
    # failed one.
    seconds: float
    # Since the evaluation before: the level was reached somewhere in between. None where none is before.
    since: float | None = None
    # True if it is the last evaluation, so that none after it shows that the loss stays there.
    last: bool = False
    # Which of its evaluations that is.
    evaluation: int | None = None

    @property
    def reached(self) -> bool:
        return self.end == "reached"


def time_of(seed: int, seconds: Sequence[float], losses: Sequence[float], level: float) -> SeedTime | None:
    """The time of a seed, from its evaluations in their order; None where there is none, or no training time passed between two.

    A loss that is not finite is not below.
    """
    below = [math.isfinite(loss) and loss < level for loss in losses]
    if not below or any(later <= earlier for earlier, later in pairwise(seconds)):
        return None
    at = len(below)
    while at and below[at - 1]:
        at -= 1
    if at == len(below):
        return SeedTime(seed, "touched" if any(below) else "above", seconds[-1])
    if at == 0:
        return SeedTime(seed, "below", seconds[0])
    return SeedTime(seed, "reached", seconds[at], seconds[at] - seconds[at - 1], at == len(below) - 1, at)


@dataclass(frozen=True)
class MedianTime:
    """The median over seeds with its interval, in seconds. None: it is not determined, or the end is not known."""

    value: float | None
    low: float | None
    high: float | None


def median_time(times: Sequence[SeedTime], alpha: float) -> MedianTime:
    """The median of the times of some seeds, each of which reached the level or did not within its training.

    The median is given where it is the same whatever the true times of the others are. The interval is that between two order
    statistics, by the binomial distribution (Conover, Practical Nonparametric Statistics, 3.2): the chance that it leaves the median out
    is `alpha` at most.
    """
    least = sorted(time.seconds for time in times)
    most = sorted(time.seconds if time.reached else math.inf for time in times)
    value = _middle(least)
    rank = _rank(len(times), alpha)
    return MedianTime(
        value if value is not None and value == _middle(most) else None,
        least[rank - 1] if rank else None,
        most[-rank] if rank and math.isfinite(most[-rank]) else None,
    )


def _middle(ordered: Sequence[float]) -> float | None:
    half = len(ordered) // 2
    return (ordered[half] + ordered[~half]) / 2 if ordered else None


def _rank(count: int, alpha: float) -> int:
    """The largest k for which the k-th smallest and the k-th largest of `count` values cover their population's median; 0 for none."""
    rank, tail = 0, 0.0
    while rank < count // 2:
        tail += math.comb(count, rank) / 2**count
        if 2 * tail > alpha:
            break
        rank += 1
    return rank
