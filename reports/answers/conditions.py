"""The conditions of the machines that measured: nodes that were given up, a drift that all cells of a run share, and signs of other work.

A low share of the CPUs alone shows nothing of other work: a small network leaves most of them idle. Less than one CPU does, and so does
another framework that got more at the same work (reports/data/telemetry_signals.py). Runs of older releases do not record what others
took (runner/results/on_disk/other_work.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reports.data.model import MeasuredCell, StoredRun
from reports.data.telemetry_signals import FEW, cpus_busy, given
from reports.wording import apart, number, plural
from runner.results.on_disk.other_work import OtherWork
from runner.results.statistics import Array
from runner.results.student import student_tail
from runner.text import in_a_line

# Of a node's name and of a reason, both from run.json.
_MOST = 300
# The share of runs without a drift that are said to have one.
ALPHA = 0.01
# A smaller drift is real on a quiet machine, but below what cells are compared by.
SMALLEST = 0.02
MOST_NAMED = 6  # of the cells that a sentence names


def drained(runs: Iterable[StoredRun]) -> tuple[str, ...]:
    """A sentence for each node that these runs gave up for good. The node's results count, and somebody must look at it."""
    return tuple(
        f"Node {in_a_line(entry['node'], _MOST)} was drained: {in_a_line(entry.get('lost') or 'no reason is stored', _MOST)}. "
        "Look at it before you use it again."
        for run in runs
        for entry in run.manifest.get("nodes") or ()
        if entry.get("drained")
    )


# -- A drift of all cells ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drift:
    """The common drift of the cells of one run on one device, from the first repeat to the last."""

    run_id: str
    cells: int
    alike: int  # of them, those that moved in the direction of the mean
    repeats: tuple[int, int]  # the numbers of the first and the last
    ratio: float  # of the mean step times, the last to the first

    def __str__(self) -> str:
        change = "shorter" if self.ratio < 1 else "longer"
        who = f"all {self.cells} cells" if self.alike == self.cells else f"{self.alike} of {plural(self.cells, 'cell')}"
        first, last = self.repeats
        return (
            f"Drift in run {self.run_id}: from repeat {first} to repeat {last} a step {apart(self.ratio)} "
            f"in the mean of its cells, and is {change} in {who}. So the machine changed, not what one cell does."
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
        logs = np.array([cell.log_levels for cell in whole])
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


# -- Other work --------------------------------------------------------------------------------------------------------------------


def question(cells: Iterable[MeasuredCell]) -> str:
    """A sentence for the top of a report; empty where nothing hints at other work on the machine."""
    cells = list(cells)
    noisy = [cell for cell in cells if cell.ended_well and cell.too_noisy]
    parts = []
    if noisy:
        low = _low(noisy)
        of_cpus = f"; {len(low)} of them got less than half of their CPUs, one {_share(low)}" if low else ""
        parts.append(
            f"{plural(len(noisy), 'cell')} {'is' if len(noisy) == 1 else 'are'} too noisy to be ranked ({_named(noisy)}){of_cpus}"
        )
    if low := _low(_starved(cells)):
        got = f"{plural(len(low), 'cell')} got less than half of {'its' if len(low) == 1 else 'their'} CPUs"
        parts.append(f"{got} ({_named(_starved(cells))}), one {_share(low)}")
    if taken := _taken(cells):
        most = max(taken)
        parts.append(
            f"other work kept CPUs busy beside {plural(len(taken), 'cell')}, at most {most.cpus:.2g} beside one that had {most.of_the_cell}"
        )
    return f"Other programs may have slowed some cells: {'; '.join(parts)}." if parts else ""


def _taken(cells: Iterable[MeasuredCell]) -> list[OtherWork]:
    return [cell.other_work for cell in cells if cell.other_work]


def _named(cells: Iterable[MeasuredCell]) -> str:
    """The names of cells with their workloads; of many the first ones, and how many more there are."""
    names = [f"{cell.label}, {cell.key.workload}" for cell in cells]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return "; ".join([*names[:MOST_NAMED], *more])


def in_short(cells: Iterable[MeasuredCell]) -> str:
    """The same in a few words; empty where there is no question."""
    cells = list(cells)
    low = _low([*(cell for cell in cells if cell.ended_well and cell.too_noisy), *_starved(cells)])
    if taken := _taken(cells):
        return f"other work took {number(max(taken).cpus, 2)} CPUs"
    return f"a cell got {_share(low)} CPUs" if low else "perhaps other programs ran" if question(cells) else ""


def _starved(cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    return [cell for cell in cells if cell.cpu_share is not None and not cell.too_noisy]


def _low(cells: Iterable[MeasuredCell]) -> list[tuple[float, int]]:
    """(CPUs that it kept busy, CPUs that it was given) of each cell with few of them, the least share first."""
    shares = ((busy, threads) for cell in cells if (busy := cpus_busy(cell)) is not None and (threads := given(cell)))
    return sorted((pair for pair in shares if pair[0] < FEW * pair[1]), key=lambda pair: pair[0] / pair[1])


def _share(low: list[tuple[float, int]]) -> str:
    return f"{number(low[0][0], 2)} of {low[0][1]}"
