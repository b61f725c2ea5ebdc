"""Do the frameworks of a group train alike? At equal steps their losses must agree within what right runs differ by.

Cells of one run begin with the same parameters and take the same batches, on real data and with any seed too, where no loss is stored.
What right runs differ by grows from step to step. It is stored: of each of several seeds, the losses of runs that differ by rounding only,
or by the masks of dropout (bench.learning_reference).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench import rules
from reports.data.model import MeasuredCell
from reports.wording import number
from runner.results.statistics import Array

# Two runs differ by a normal error of this many deviations in one of 10^9 cases.
DEVIATIONS = 6.0
# Of the difference of two runs.
OF_TWO = 2.0**0.5
# The least spread, relative to the loss: that of other orders of summation (bench.learning).
ROUNDING = 2.0**-16
# The steps on each side of one from which its spread is estimated, too.
NEIGHBOURS = 3


def disagreements(cells: Sequence[MeasuredCell]) -> list[str]:
    """A sentence for the two cells of a group and run that are furthest apart, where they are too far; cells: at one precision."""
    key = cells[0].key if cells else None
    if key is None or key.precision != "fp32" or key.devices > 1:
        return []
    spread = growth(key.workload, key.batch)
    worst = max((pair for run in _runs(cells) for pair in _pairs(run, spread)), default=None)
    if worst is None or worst[0] <= 1.0:
        return []
    _, step, (one, first), (other, second) = worst
    losses = f"{one} {number(first)}, {other} {number(second)}"
    return [f"The losses part at step {step}, further than those of right runs do: {losses}. One may train otherwise."]


@functools.cache
def growth(workload: str, batch: int) -> Array:
    """Of each of the first steps, the largest relative deviation of runs of one seed; empty where nothing is stored."""
    # A name in a results file may be any text, and here it would be a pattern.
    if workload not in rules.workload_names():
        return np.zeros(0)
    paths = sorted(Path(rules.WORKLOADS).glob(f"{rules.losses_of(workload)}.{batch}-of-*.seed*.learning.txt"))
    spreads = [_spread(np.loadtxt(path, ndmin=2)) for path in paths]
    if not spreads:
        return np.zeros(0)
    steps = min(len(spread) for spread in spreads)
    largest: Array = np.stack([spread[:steps] for spread in spreads]).max(axis=0)
    return largest


def _spread(runs: Array) -> Array:
    squares = np.maximum(runs.var(axis=0, ddof=1) / runs.mean(axis=0) ** 2, ROUNDING**2)
    around = [squares[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1].mean() for at in range(len(squares))]
    return np.sqrt(around)


def _runs(cells: Sequence[MeasuredCell]) -> list[list[MeasuredCell]]:
    names = dict.fromkeys(cell.run_id for cell in cells)
    return [[cell for cell in cells if cell.run_id == name] for name in names]


Loss = tuple[str, float]


def _pairs(cells: Sequence[MeasuredCell], spread: Array) -> list[tuple[float, int, Loss, Loss]]:
    """(their distance in what is allowed, the step, the two losses) of each cell and the one whose loss is the middle there."""
    by_step: dict[int, list[Loss]] = {}
    for cell in cells:
        for step, value in _losses(cell, len(spread)).items():
            by_step.setdefault(step, []).append((cell.label, value))
    pairs = []
    for step, losses in by_step.items():
        middle = sorted(losses, key=lambda loss: loss[1])[len(losses) // 2]
        allowed = DEVIATIONS * OF_TWO * float(spread[step - 1]) * abs(middle[1])
        pairs += [(abs(loss[1] - middle[1]) / allowed, step, loss, middle) for loss in losses if loss is not middle]
    return pairs


def _losses(cell: MeasuredCell, steps: int) -> dict[int, float]:
    """step -> the loss of the first repeat, of the steps that have a spread."""
    curves = [curve for repeat in cell.repeats[:1] for curve in repeat.curves]
    of_training = [curve for curve in curves if (curve.name, curve.split) == ("loss", "train")]
    both = [pair for curve in of_training for pair in zip(curve.steps, curve.values, strict=True)]
    return {int(step): float(value) for step, value in both if 1 <= step <= steps and np.isfinite(value)}
