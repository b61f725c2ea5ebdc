"""The verdict on a ratio of two times, from several processes that each measured it: speed_ratio.py, harness_cost.py, utility_ratio.py.

Where arrays lie in memory changes the ratio from one process to the next: 14 processes of PyTorch's cnn-cifar10 had a standard deviation
of 5 %. Time inside one process does not show that. So the interval is over the processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

Verdict = Literal["alike", "slower", "faster", "unclear"]


class Bounds(NamedTuple):
    """Between these a ratio is alright."""

    least: float
    most: float


# A step of an adapter by one of its framework's published loop. An adapter may be better than a document's loop by what its docstring says.
# Leaving out the backward pass gives less than 0.5, computing 45 of the GRU's 150 positions 0.55, and half of the steps 0.5.
ADAPTER = Bounds(0.8, 1.05)
# A step under the bench by one of a plain loop.
HARNESS = Bounds(0.0, 1.02)
# A product's rate in `ops` by the one that PyTorch's own utility reads.
UTILITY = Bounds(0.97, 1.03)

# Three processes can show that a ratio lies between the bounds. Fewer than five are alike by chance too often to accuse an adapter.
LEAST_PROCESSES, ACCUSING_PROCESSES = 3, 5
PROCESSES = 7  # where no bound is crossed, but the interval reaches over one
MOST_PROCESSES = 12  # where the interval is too wide to tell anything
# The widest interval of a verdict, its high end by its low end: with a wider one, an adapter that takes a quarter longer would pass.
WIDEST = 1.2
# Student's t for 95 %, by the number of processes.
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 11: 2.228, 12: 2.201}


def interval(ratios: list[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of the processes' log ratios, as ratios."""
    logarithms = np.log(ratios)
    reach = STUDENT[len(ratios)] * float(np.std(logarithms, ddof=1)) / math.sqrt(len(ratios))
    mean = float(np.mean(logarithms))
    return math.exp(mean - reach), math.exp(mean + reach)


def judge(ratios: list[float], bounds: Bounds) -> Verdict | None:
    """The verdict, or None where another process is needed.

    - slower: the whole interval lies above the bounds
    - faster: the whole interval lies below them: an adapter that leaves out work looks like this
    - alike: neither, and the interval is narrow enough to have shown a fault
    - unclear: the interval is too wide after MOST_PROCESSES
    """
    if len(ratios) < LEAST_PROCESSES:
        return None
    low, high = interval(ratios)
    if len(ratios) >= ACCUSING_PROCESSES and low > bounds.most:
        return "slower"
    if len(ratios) >= ACCUSING_PROCESSES and high < bounds.least:
        return "faster"
    inside = bounds.least <= low and high <= bounds.most
    if inside or (len(ratios) >= PROCESSES and high / low <= WIDEST):
        return "alike"
    return None if len(ratios) < MOST_PROCESSES else "unclear"


def verdict_of(measure: Callable[[], float], bounds: Bounds) -> tuple[Verdict, list[float]]:
    """The verdict and the ratios that it is of; `measure` starts one more process."""
    ratios = [measure()]
    while (verdict := judge(ratios, bounds)) is None:
        ratios.append(measure())
    return verdict, ratios
