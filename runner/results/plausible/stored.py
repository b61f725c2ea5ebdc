"""The stored windows of a repeat that ended well, held against each other and against its row of cells: no run stores others.

A row and its windows are of the same events, so what differs between them was changed later, in one of the two files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from runner.results.plausible.arrivals import far_apart
from runner.results.statistics import Array

# What lies between the clock of a phase and those of its windows is microseconds; the rest is rounding. As when the cell ended.
_SLACK_SECONDS = 0.25
_ROUNDING_SECONDS = 0.01
# Of 130 real repeats a phase lasted 0.03 s longer at most than from the begin of its first window to the end of its last one.
_MOST_OF_SPAN, _MOST_BESIDE_SECONDS = 1.1, 1.0
# The first step's time is the same number in both tables.
_SAME = 1e-9


def contradiction(row: Mapping[str, Any], stage: Array, begin: Array, seconds: Array, steps: Array) -> str | None:
    """What no run stores together, as a sentence; None where nothing is. `row` is the repeat's own, and the others are its windows'."""
    taken = int(steps.sum())
    if row.get("steps") is None:
        return f"steps is missing in cells, and its windows in samples have {taken}"
    if row["steps"] != taken:
        return f"it took {row['steps']} steps and its windows in samples have {taken}"
    return _of_phases(row, stage, begin, seconds) or _of_windows(row, begin, seconds)


def _of_phases(row: Mapping[str, Any], stage: Array, begin: Array, seconds: Array) -> str | None:
    """Where the windows of a phase took another time than it."""
    first, said = seconds[stage == "first"], row.get("first_step_seconds")
    if len(first) and (said is None or not math.isclose(first[-1], said, rel_tol=_SAME)):
        here = "missing" if said is None else f"{said:.6g}"
        return f"first_step_seconds is {here} in cells, and that window has {first[-1]:.6g} seconds in samples"
    # Features are computed in the phase "evaluate".
    name = "train_seconds" if row.get("train_seconds") is not None else "evaluate_seconds"
    whole, steady = row.get(name), stage == "steady"
    if whole is None or not steady.any():
        return None
    lasted = float(seconds[steady].sum())
    if lasted > whole + _SLACK_SECONDS:
        return f"{name} is {whole:.3f} in cells, and its steady windows have {lasted:.3f} seconds in samples"
    # A whole run evaluates between its windows. A short one does nothing else in that phase, but for what lies between two windows.
    span = float((begin + seconds)[steady].max() - begin[steady].min())
    if row.get("short") and whole > _MOST_OF_SPAN * span + _MOST_BESIDE_SECONDS:
        return f"{name} is {whole:.3f} in cells, and its steady windows in samples lie within {span:.3f} s"
    return None


def _of_windows(row: Mapping[str, Any], begin: Array, seconds: Array) -> str | None:
    """Where windows overlap, lie further apart than a cell's do, or end after its process."""
    order = np.argsort(begin, kind="stable")
    begin, seconds = begin[order], seconds[order]
    end = begin + seconds
    if len(end) > 1 and np.any(begin[1:] < np.maximum.accumulate(end)[:-1] - _ROUNDING_SECONDS):
        return "a window in samples begins before the one before it ended"
    lived = row.get("wall_seconds")
    if lived is not None and len(end) and end.max() > lived + _ROUNDING_SECONDS:
        return f"wall_seconds is {lived:.3f} in cells, and its last window in samples ended {end.max():.3f} s after it began"
    # Of a whole run, it evaluated between its windows.
    evaluated = 0.0 if row.get("short") or row.get("train_seconds") is None else row.get("evaluate_seconds") or 0.0
    why = far_apart(np.diff(end).tolist(), seconds[1:].tolist(), evaluated)
    return why and f"by begin_seconds and seconds in samples {why}"
