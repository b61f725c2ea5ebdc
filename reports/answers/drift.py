"""A drift that all cells of a run share: from repeat to repeat the machine got faster or slower, whatever it computed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reports.data.model import MeasuredCell
from reports.wording import percent, plural
from runner.results.statistics import Array
from runner.results.student import student_tail

# The share of runs without a drift that are said to have one.
ALPHA = 0.01
# A smaller drift is real on a quiet machine, but below what cells are compared by.
SMALLEST = 0.02


@dataclass(frozen=True)
class Drift:
    """The common drift of the cells of one run on one device, from the first repeat to the last."""

    run_id: str
    cells: int
    alike: int  # of them, those that moved in the direction of the mean
    repeats: tuple[int, int]  # the numbers of the first and the last
    ratio: float  # of the mean step times, the last to the first

    def __str__(self) -> str:
        change = "less time" if self.ratio < 1 else "longer"
        who = f"all {self.cells} cells" if self.alike == self.cells else f"{self.alike} of {plural(self.cells, 'cell')}"
        first, last = self.repeats
        return (
            f"Drift in run {self.run_id}: from repeat {first} to repeat {last} a step takes {percent(abs(self.ratio - 1))} "
            f"{change} in the mean of its cells, and {change} in {who}. So the machine changed, not what one cell does."
        )


def drifts(cells: Iterable[MeasuredCell]) -> tuple[Drift, ...]:
    """The drift of each run and device model, where it is beyond noise. Cells that lack a repeat of the others are left out."""
    families: dict[tuple[str, str], dict[str, MeasuredCell]] = {}
    for cell in cells:
        if not cell.unranked and len(cell.measured) > 1:
            families.setdefault((cell.run_id, cell.key.device_model), {})[cell.anchor] = cell
    found = []
    for (run_id, _), family in families.items():
        blocks = max((tuple(repeat.number for repeat in cell.measured) for cell in family.values()), key=len)
        whole = [cell for cell in family.values() if tuple(repeat.number for repeat in cell.measured) == blocks]
        logs = np.log([[np.median(repeat.steady_step_seconds) for repeat in cell.measured] for cell in whole])
        change = common_change(logs)
        if change is not None and abs(change) >= math.log(1 + SMALLEST):
            alike = int(np.sum((logs[:, -1] - logs[:, 0]) * change > 0))
            found.append(Drift(run_id, len(whole), alike, (blocks[0], blocks[-1]), math.exp(change)))
    return tuple(found)


def common_change(logs: Array) -> float | None:
    """The mean change of (cells, repeats) log times from the first repeat to the last; None where it may be noise.

    The test is of a straight line over the repeats that all cells share, as the analysis of variance has it: beside the noise
    that is left after each cell's and each repeat's mean, with (cells - 1) (repeats - 1) degrees of freedom. It takes two cells.
    """
    cells, repeats = logs.shape
    freedom = (cells - 1) * (repeats - 1)
    if not freedom:
        return None
    means = logs.mean(axis=0)
    left = logs - logs.mean(axis=1, keepdims=True) - means + logs.mean()
    line = np.arange(repeats) - (repeats - 1) / 2
    error = math.sqrt(float(np.sum(left**2)) / freedom * float(line @ line) / cells)
    height = abs(float(line @ means))
    if height == 0 or (error and student_tail(height / error, freedom) >= ALPHA):
        return None
    return float(means[-1] - means[0])
