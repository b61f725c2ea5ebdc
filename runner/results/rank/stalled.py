"""Stalls of one cell beside those of another measurement of it: the mean step beside the median of the windows. Pure functions of numbers.

Neither sessions nor processes move it. So stalls are found on machines whose repeats differ by more than a margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from runner.results.rank.blocks import Scatter, moderated_scatter
from runner.results.statistics import Difference, Windowed, log_levels, log_typical, timings

Session = Sequence[Windowed]  # the windows of each repeat


def more_stalled(measured: Sequence[Session], before: Sequence[Session]) -> Difference:
    """The logarithm of mean step over typical step of a cell, less the same of another measurement of it. Each has some sessions."""
    (now, of_now), (then, of_then) = _stalled(measured), _stalled(before)
    error = math.hypot(of_now.deviation, of_then.deviation)
    spread = sum(of.deviation**4 / of.freedom for of in (of_now, of_then))
    return Difference(now - then, error, error**4 / spread if spread else 1.0)


def _stalled(sessions: Sequence[Session]) -> tuple[float, Scatter]:
    """The mean over all repeats, and its error: as far as the repeats differ, drawn towards what their windows show."""
    logs = np.concatenate([log_levels(session) - log_typical(session) for session in sessions])
    of_windows = float(np.mean([timings(repeat).error ** 2 for session in sessions for repeat in session]))
    shown = moderated_scatter(math.sqrt(of_windows), float(np.var(logs)) * len(logs), len(logs) - 1)
    deviation = max(shown.deviation, math.sqrt(of_windows)) / math.sqrt(len(logs))
    return float(logs.mean()), Scatter(deviation, shown.freedom, shown.observed)
