"""What two sessions do to all that they measured. A session is everything that one run measures.

Clocks, temperature and other work of the machine move all cells of a run alike, and more repeats in the same run do not
show by how much. Where two runs share enough cells, the cells themselves show it: what moved nearly all of them by one
factor is common, and each cell is judged beside it. Otherwise, and where a cell that was measured well stayed, a difference
must exceed what two sessions are assumed to differ by. A factor that sessions hardly reach may be a change of every cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reports.answers.contrast import Contrast, Side, contrasts, judged, moderated_ratios
from reports.data.groups import sessions_of
from reports.data.model import MeasuredCell
from reports.text import listing, percent, plural
from runner.results import statistics
from runner.results.ranking import MARGIN
from runner.results.statistics import SESSION_DEVIATION, Array, Estimate, of_kind

# So many rows must have moved together. One changed cell of four leaves three: fewer rows cannot tell it from the others.
NEARLY_ALL = 0.75
FEWEST_ROWS = 4
# The standard error of a median of normal values is so many times that of their mean.
_MEDIAN = math.sqrt(math.pi / 2)
# Two sessions differ by at most so many standard deviations of their difference.
_FARTHEST = 3 * math.sqrt(2)
BESIDE = "judged beside what moved all cells"


@dataclass(frozen=True)
class CommonShift:
    """The factor that moved nearly all cells of two runs."""

    ratio: Estimate  # above 1: the second run took longer
    moved: int  # rows that it moved
    rows: int
    plausible: float = math.inf  # the largest change, as a share, that two sessions or the margin allow
    stayed: tuple[str, ...] = ()  # the cells that were measured well and did not move with the others
    changed: tuple[str, ...] = ()  # the recorded facts that differ between the sides of all rows

    @property
    def beside(self) -> bool:
        """Whether the cells are judged beside it."""
        return not self.stayed

    @property
    def large(self) -> bool:
        """Whether it is more than two sessions of one machine are assumed to differ by: it may be a change of every cell."""
        return abs(math.log(self.ratio.value)) > math.log1p(self.plausible)

    @property
    def known(self) -> bool:
        """Whether the cells moved at all: by more than three standard errors, which come from few repeats."""
        return abs(math.log(self.ratio.value)) > 3 * (self.ratio.error or 0.0)

    @property
    def said(self) -> str:
        """Sentences for the top of the answer; empty where nothing moved together."""
        if not self.known and not self.large:
            return ""
        cells = f"All {plural(self.rows, 'cell')}" if self.moved == self.rows else f"{self.moved} of {self.rows} cells"
        said = f"{cells} moved together: they take {self.size}."
        if self.stayed:
            said += f" {_named(self.stayed)} did not, so it is not the machine alone."
        if not self.large:
            return said + ("" if self.stayed else " The machine did that, or something that all cells share.")
        changed = f" Between them changed: {'; '.join(self.changed)}." if self.changed else ""
        return (
            f"{said} Two runs of one machine are assumed to differ by at most {percent(self.plausible, 2)}: the change may be "
            f"real.{changed} Measure both in one run: runner matrix --images A,B"
        )

    @property
    def size(self) -> str:
        """How far the cells moved, in words."""
        change = self.ratio.value - 1
        return f"{percent(abs(change), 2)} {'longer' if change > 0 else 'less time'}"


def _named(cells: Sequence[str]) -> str:
    return listing([*cells[:3], *([f"{len(cells) - 3} more"] if len(cells) > 3 else [])])


def between_runs(
    pairs: Sequence[tuple[Side, Side]],
    margin: float = MARGIN,
    others: Iterable[MeasuredCell] = (),
    *,
    common: bool = False,
) -> tuple[tuple[Contrast, ...], CommonShift | None]:
    """The pairs (before, after) of one table, judged together with what their sessions may do, and the common shift.

    `others` are all cells, of which those of a run stand in its blocks. `common`: the pairs are the same cells of two runs,
    so what moved nearly all of them is not their own.
    """
    rows = [beside_sessions(row) for row in contrasts(pairs, margin, others)]
    if not common:
        return judged(rows), None
    rows = [_with_repeats(row) for row in rows]
    ratios = _without_drift(pairs)
    shift = _common(rows, ratios, margin)
    if shift is None:
        return judged(rows), None
    if shift.beside:
        log, error = math.log(shift.ratio.value), shift.ratio.error or 0.0
        rows = [
            row if ratio is None else replace(row, beside=statistics.beside(ratio, log, error, estimated=True))
            for row, ratio in zip(rows, ratios, strict=True)
        ]
    return tuple(_with_reason(row, shift) for row in judged(rows)), shift


def _with_repeats(row: Contrast) -> Contrast:
    """The row without an error where a side has one repeat: no ratio is claimed of it."""
    if row.ratio is None or min(len(row.before.repeats), len(row.after.repeats)) > 1:
        return row
    return replace(row, ratio=replace(row.ratio, error=None, freedom=None))


def _with_reason(row: Contrast, shift: CommonShift) -> Contrast:
    """The row, whose reason says that it was judged beside the shift. Beside a large one no row is called the same, nor faster."""
    faster = shift.large and bool(shift.stayed) and shift.ratio.value < 1
    if not faster and (row.beside is None or row.real):
        return row
    if shift.large:
        reason = (
            f"the cells take {shift.size}, and two runs are assumed to differ by at most {percent(shift.plausible, 2)}"
        )
        return replace(row, verdict="open", reason=reason)
    return replace(row, reason="; ".join(filter(None, (row.reason, BESIDE)))) if shift.known else row


def beside_sessions(row: Contrast) -> Contrast:
    """The row with an interval that has room for what two sessions are assumed to differ by: two runs, or a run that was resumed."""
    sides = [sessions_of(side.cells) for side in (row.before, row.after)]
    if row.ratio is None or not all(sides) or sides[0] & sides[1]:
        return row
    deviation = _deviation(row) * math.sqrt(sum(1 / len(runs) for runs in sides))
    return replace(row, ratio=statistics.beside(row.ratio, 0.0, deviation))


def _deviation(row: Contrast) -> float:
    """What a session of the row's device is assumed to differ by."""
    return of_kind(SESSION_DEVIATION, row.cell.key.device_kind)


def _common(rows: Sequence[Contrast], all_ratios: Sequence[Estimate | None], margin: float) -> CommonShift | None:
    """What moved nearly all of the rows; None where their ratios do not agree, or are too few.

    The shift is the median of the ratios' logarithms. A row moved with it if it is nearer to the shift than the shift is far
    from no change, or lies within three standard errors.
    """
    fit = [(row, ratio) for row, ratio in zip(rows, all_ratios, strict=True) if ratio is not None]
    if len(fit) < FEWEST_ROWS:
        return None
    ratios = [ratio for _, ratio in fit]
    logs = np.log([ratio.value for ratio in ratios])
    errors = np.array([max(ratio.error or 0.0, ratio.inside or 0.0) for ratio in ratios])
    shift, error = float(np.median(logs)), _MEDIAN * float(np.median(errors)) / math.sqrt(len(ratios))
    nearby = np.maximum(abs(shift) / 2, 3 * np.hypot(errors, error))
    apart = np.abs(logs - shift) > nearby
    moved = len(ratios) - int(np.sum(apart))
    if moved < NEARLY_ALL * len(ratios):
        return None
    low, high = math.exp(shift - 2 * error), math.exp(shift + 2 * error)
    windows, repeats = min(ratio.windows for ratio in ratios), min(ratio.repeats for ratio in ratios)
    estimate = Estimate(math.exp(shift), low, high, windows, repeats, "median of the cells' ratios", "", error)
    common = CommonShift(
        estimate,
        moved,
        len(ratios),
        max(margin, _FARTHEST * max(_deviation(row) for row, _ in fit)),
        changed=tuple(str(fact) for fact in fit[0][0].differences if all(fact in row.differences for row, _ in fit)),
    )
    stayed = (
        apart & _stayed(logs, shift, margin)
        if common.known and (shift > 0 or common.large)
        else np.zeros(len(fit), dtype=bool)
    )
    names = tuple(f"{row.cell.name}, {row.cell.key.workload}" for (row, _), at in zip(fit, stayed, strict=True) if at)
    return replace(common, stayed=names)


def _stayed(logs: Array, shift: float, margin: float) -> npt.NDArray[np.bool_]:
    """Which rows are nearer to no change than to the shift; beside a slowdown beyond the margin also those that went the other way.

    Where the others take less time by no more than sessions differ by, the machine became faster and the row slower: it is judged beside.
    """
    stayed = np.abs(logs) <= abs(shift) / 2
    return stayed | (logs < 0) if shift > math.log1p(margin) else stayed


def _without_drift(pairs: Sequence[tuple[Side, Side]]) -> list[Estimate | None]:
    """The ratio of each pair without what moved all cells from one repeat to the next; None where repeats do not say how sure it is."""
    before, after = (_levelled(sides) for sides in zip(*pairs, strict=True)) if pairs else ([], [])
    ratios = [statistics.ratio_estimate(*sides, alike=True) for sides in zip(after, before, strict=True)]
    return moderated_ratios(pairs, [None if ratio is None or ratio.repeats < 2 else ratio for ratio in ratios])


def _levelled(sides: Sequence[Side]) -> list[list[Array]]:
    """The windows of each side's repeats, divided by what moved all cells of the run in that repeat's block.

    The repeats of a number are one block: the run measured them close together. Cells that lack a block say nothing about
    the drift between blocks. With fewer than three complete cells the windows stay as they are.
    """
    numbers = sorted({repeat.number for side in sides for repeat in side.repeats})
    logs = np.array(
        [
            [
                math.log(np.median(repeat.steady_step_seconds))
                for repeat in sorted(side.repeats, key=lambda one: one.number)
            ]
            for side in sides
            if sorted(repeat.number for repeat in side.repeats) == numbers
        ]
    )
    drift = dict.fromkeys(numbers, 0.0)
    if len(logs) >= 3:
        drift = dict(zip(numbers, np.median(logs - logs.mean(axis=1, keepdims=True), axis=0).tolist(), strict=True))
    return [
        [np.asarray(repeat.steady_step_seconds) / math.exp(drift[repeat.number]) for repeat in side.repeats]
        for side in sides
    ]
