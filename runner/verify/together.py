"""What moved nearly all cells of a verification by one factor beside their references. Pure; the verdicts stay as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reports.answers.sessions import FEWEST_ROWS, NEARLY_ALL, CommonShift
from runner.results.statistics import Estimate
from runner.verify.verdict import Ratio


def together(ratios: Sequence[Ratio]) -> str:
    """One sentence or two on what moved the cells together, as `runner compare` says it; empty where nothing did, or too few show it."""
    if len(ratios) < FEWEST_ROWS:
        return ""
    logs = np.log([ratio.value for ratio in ratios])
    errors = np.array(
        [
            ratio.between.deviation * math.sqrt(1 / ratio.measured_repeats + 1 / ratio.reference_repeats)
            for ratio in ratios
        ]
    )
    shift = float(np.median(logs))
    # The standard error of a median of normal values is so many times that of their mean.
    error = math.sqrt(math.pi / 2) * float(np.median(errors)) / math.sqrt(len(ratios))
    near = np.abs(logs - shift) <= np.maximum(abs(shift) / 2, 3 * np.hypot(errors, error))
    moved = int(np.sum(near))
    if moved < NEARLY_ALL * len(ratios):
        return ""
    repeats = min(ratio.measured_repeats for ratio in ratios)
    middle = Estimate(math.exp(shift), None, None, 0, repeats, "median of the cells' ratios", error=error)
    return CommonShift(middle, moved, len(ratios)).said
