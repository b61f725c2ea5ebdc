"""The effect of two sessions on all their cells. A session is everything that one run measures.

Clocks, temperature and other work of the machine move all cells of a run alike, and more repeats in the same run do not
show by how much. Other runs of the same cells do. Without them it is assumed.

So two runs have one more row than cells: all cells together, the median of their ratios, with a verdict of its own. While
that row is open, no cell is called the same. A cell that differs from the others is named beside the row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from reports.answers.contrast import (
    ChangedFact,
    Contrast,
    Side,
    contrasts,
    differences,
    judged,
    moderated_ratios,
)
from reports.data.groups import sessions_of
from reports.data.model import MeasuredCell, Tables
from reports.wording import apart, between_ratios, percent, plural
from runner.results import statistics, student
from runner.results.rank.blocks import LOUD, moderated, more_stalled
from runner.results.rank.ranking import MARGIN, OWN_DEVIATION, Verdict, within
from runner.results.statistics import SESSION_DEVIATION, Array, Estimate, Timings, of_kind

# The share and the number of rows that must have moved together. One changed cell of four leaves three: fewer rows cannot tell it
# from the others.
NEARLY_ALL = 0.75
FEWEST_ROWS = 4
# Two of them say how much runs differ, after the levels of both sides were taken.
FEWEST_RUNS = 4
# As many runs as this count for what is assumed of sessions, where the measured ones differ by as much as that.
PRIOR_FREEDOM = 4.0
# The factor for a cell's own ratio if the other cells moved the other way: its distance from 1 beside theirs, as the session's effect
# is in both. With more, a cell that is 10 % slower is missed in more than one of ten runs whose sessions differ by 2 %.
OPPOSED = 1.5
# The standard error of a median of normal values is so many times that of their mean.
_MEDIAN = math.sqrt(math.pi / 2)
# The standard deviation of normal values is so many times their median absolute deviation.
_OF_DEVIATIONS = 1.4826
SHARED = "The machine did that, or something that all cells share."
_OPEN = "what moved all cells together is open"


@dataclass(frozen=True)
class Sessions:
    """How far sessions differ: standard deviations of a log level."""

    deviation: float  # of what all cells of a run share
    freedom: float = math.inf  # degrees of freedom of it; infinite where it is assumed
    runs: int = 0  # that show it; 0: it is assumed
    own: float = 0.0  # of one cell beside what all share; where runs show it, its repeats included
    own_freedom: float = 1e6

    @property
    def between_two(self) -> float:
        return math.sqrt(2) * self.deviation

    @property
    def source(self) -> str:
        """The origin of the figure, and the most by which two runs then differ."""
        reach = math.expm1(student.student_quantile(0.975, min(1e6, self.freedom)) * self.between_two)
        if self.runs:
            return f"{plural(self.runs, 'run')} of these cells show that two differ by up to {percent(reach, 2)}"
        few = f"since the folder holds fewer than {FEWEST_RUNS} runs of these cells"
        return f"two runs are assumed to differ by up to {percent(reach, 2)}, {few}"


@dataclass(frozen=True)
class CommonShift:
    """The factor that moved the cells of two runs together: the median of their ratios."""

    ratio: Estimate  # above 1: the second run took longer. Its interval has room for what two sessions differ by.
    moved: int  # rows that moved by about as much
    rows: int
    sessions: Sessions | None = None
    differences: tuple[ChangedFact, ...] = ()  # of all rows
    margin: float = MARGIN

    @cached_property
    def row(self) -> Contrast:
        """The shift as a row of the table. It has no cells, since it is of all."""
        p, factor = statistics.p_value(self.ratio), self.ratio.value
        verdict: Verdict = "open"
        if statistics.told_apart(p):
            verdict = "slower" if factor > 1 else "faster"
        elif within(self.ratio, self.margin):
            verdict = "same"
        reason = self.sessions.source if verdict == "open" and self.sessions else ""
        return Contrast(Side(()), Side(()), self.ratio, p, verdict, reason, self.differences, self.margin)

    @property
    def known(self) -> bool:
        """True if the cells moved at all: by more than three standard errors of the cells' own."""
        error = self.ratio.error if self.ratio.inside is None else self.ratio.inside
        return abs(math.log(self.ratio.value)) > 3 * (error or 0.0)

    @property
    def agreed(self) -> bool:
        """True if nearly all cells moved by it, so that the others can be judged beside it."""
        return self.rows >= FEWEST_ROWS and self.moved >= NEARLY_ALL * self.rows

    @property
    def said(self) -> str:
        """A sentence for the top of an answer; empty where nothing moved together."""
        if not self.known or not self.agreed:
            return ""
        cells = f"All {plural(self.rows, 'cell')}" if self.moved == self.rows else f"{self.moved} of {self.rows} cells"
        size = apart(self.ratio.value)
        if self.ratio.low is None:
            return f"{cells} moved together: a step {size}. {SHARED}"
        reason = f", since {self.row.reason}" if self.row.reason else ""
        return (
            f"{cells} moved together: a step {size} ({between_ratios(self.ratio)}). That is {self.row.verdict}{reason}."
        )


def between_runs(
    pairs: Sequence[tuple[Side, Side]], margin: float = MARGIN, others: Iterable[MeasuredCell] = ()
) -> tuple[Contrast, ...]:
    """The pairs (before, after) of one table, judged together with what their sessions may do.

    `others` are all cells, of which those of a run stand in its blocks.
    """
    return judged(_by_runs([beside_sessions(row) for row in contrasts(pairs, margin, others)]))


def _by_runs(rows: Sequence[Contrast]) -> list[Contrast]:
    """The rows, where several runs measured both sides with the run as the unit: a cell's level may differ between sessions by itself.

    The repeats of one run share that, and do not show it. No interval becomes narrower than that of the repeats.
    """
    found = {at: np.array(_apart(row)) for at, row in enumerate(rows) if row.ratio}
    apart = {at: logs for at, logs in found.items() if len(logs) > 1}
    if not apart:
        return list(rows)
    squares = np.array([float(np.sum((logs - logs.mean()) ** 2)) for logs in apart.values()])
    noise = moderated(squares, np.array([len(logs) - 1.0 for logs in apart.values()]))
    wider = list(rows)
    for place, (at, logs) in enumerate(apart.items()):
        row = rows[at]
        if row.ratio is not None:
            ratio = statistics.with_error(row.ratio, *noise.error({place: 1 / len(logs)}))
            wider[at] = row if (ratio.high or 0.0) <= (row.ratio.high or 0.0) else replace(row, ratio=ratio)
    return wider


def _apart(row: Contrast) -> list[float]:
    """The logarithm of the ratio in each run, where the same runs measured both sides."""
    before, after = ({cell.run_id: level_of(cell) for cell in side.cells} for side in (row.before, row.after))
    return [after[run] - before[run] for run in before] if before.keys() == after.keys() else []


def two_runs(
    pairs: Sequence[tuple[Side, Side]], margin: float = MARGIN, around: Tables | None = None
) -> tuple[tuple[Contrast, ...], CommonShift | None]:
    """The same cells of two runs, each (before, after): their rows, and what moved them together. None of a single row.

    `around` are other runs, which may show how far sessions differ.
    """
    sessions = _sessions(pairs, around)
    ratios = _without_drift(pairs)
    rows = [
        Contrast(
            *pair,
            None if ratio is None else _in_sessions(ratio, sessions),
            None,
            "open",
            "",
            differences(*pair),
            margin,
        )
        for pair, ratio in zip(pairs, ratios, strict=True)
    ]
    own = judged(rows)
    shift = _common(own, ratios, sessions, margin)
    if shift is None:
        return tuple(_by_stalls(row, len(own)) for row in own), None
    apart = judged([_beside(row, ratio, shift) for row, ratio in zip(rows, ratios, strict=True)])
    told = (_told(row, other, shift) for row, other in zip(own, apart, strict=True))
    return tuple(_by_stalls(row, len(own)) for row in told), shift


def _by_stalls(row: Contrast, questions: int) -> Contrast:
    """The row, slower where it is open and stalls that the first run has not make it slower than the margin by themselves.

    It is the second question of `runner verify`: neither what sessions do nor how repeats differ moves the mean step beside the median of
    the windows. All rows are asked (Bonferroni).
    """
    sides = [[repeat.steady for repeat in side.repeats] for side in (row.after, row.before)]
    ratio = row.judged
    if row.verdict != "open" or ratio is None or ratio.value <= 1 + row.margin or not all(sides):
        return row
    more = more_stalled([sides[0]], [sides[1]])
    reach = student.student_quantile(1 - statistics.ALPHA / 2 / questions, more.freedom) * more.error
    if more.value - reach <= math.log1p(row.margin):
        return row
    alone = f"stalls that the first run has not are enough that it {apart(math.exp(more.value))}"
    of = row.cell.stalls
    return replace(row, verdict="slower", reason=f"{of}; {alone}" if of else alone)


def _told(own: Contrast, apart: Contrast, shift: CommonShift) -> Contrast:
    """The verdict on one cell: beside the shift where it differs from the others, else on its own ratio.

    Its own ratio must point the same way, and farther than OPPOSED allows: an unchanged cell is not slower because the
    others became faster. Else its own ratio counts as far as the row of all cells confirms it.
    """
    if apart.beside is not None and own.ratio is not None and apart.real:
        way = 1 if apart.longer else -1
        if way * math.log(own.ratio.value) > max(0.0, -OPPOSED * way * math.log(shift.ratio.value)):
            return apart
    common = shift.row.verdict
    if own.verdict == "same" and common == "open":
        return replace(own, verdict="open", reason=_OPEN)
    opposed = apart.beside is not None and apart.real and apart.verdict != own.verdict
    if own.real and shift.agreed and (own.verdict != common or opposed):
        return replace(own, verdict="open", reason="it does not differ from the other cells beyond doubt")
    return own


def beside_sessions(row: Contrast) -> Contrast:
    """The row with an interval that has room for what two sessions are assumed to differ by: two runs, or a run that was resumed."""
    sides = [sessions_of(side.cells) for side in (row.before, row.after)]
    if row.ratio is None or not all(sides) or sides[0] & sides[1]:
        return row
    deviation = _assumed([(row.before, row.after)], SESSION_DEVIATION) * math.sqrt(sum(1 / len(runs) for runs in sides))
    return replace(row, ratio=statistics.beside(row.ratio, 0.0, deviation))


def _assumed(pairs: Sequence[tuple[Side, Side]], figures: Mapping[str, float]) -> float:
    """The assumption on the devices: the largest of the figures of their kinds."""
    kinds = {cell.key.device_kind for _, after in pairs for cell in after.cells}
    return max((of_kind(figures, kind) for kind in kinds), default=0.0)


def same(cell: MeasuredCell) -> tuple[object, ...]:
    """The key of one cell's runs."""
    return cell.image, cell.framework, cell.mode, cell.uuid, cell.key


def _sessions(pairs: Sequence[tuple[Side, Side]], around: Tables | None) -> Sessions:
    """How far sessions differ: as the other runs of these cells show it, drawn towards what is assumed.

    The runs are alike one side in all that was recorded. Where both sides are, the level may have changed anywhere between
    them: at the place that leaves the least scatter. What is assumed counts less where the runs contradict it, in either direction.
    """
    prior = _assumed(pairs, SESSION_DEVIATION)
    groups = _alike(pairs, around) if around and len(pairs) > 1 else []
    left = [levels - levels.mean(axis=0) for levels in groups]
    runs = sum(map(len, left))
    if runs < FEWEST_RUNS:
        return Sessions(prior, own=OWN_DEVIATION)
    apart = np.concatenate(left)
    common = np.median(apart, axis=1)
    freedom, cells = runs - len(left), len(pairs)
    variance = float(np.sum(common**2)) / freedom
    far = variance / prior**2
    weight = PRIOR_FREEDOM * (min(far, 1 / far) if far else 0.0)
    deviation = math.sqrt((weight * prior**2 + freedom * variance) / (weight + freedom))
    of_cells = freedom * (cells - 1)
    own = math.sqrt(float(np.sum((apart - common[:, None]) ** 2)) / of_cells)
    return Sessions(deviation, weight + freedom, runs, own, of_cells)


def _alike(pairs: Sequence[tuple[Side, Side]], around: Tables) -> list[Array]:
    """The log levels of all cells (runs × cells), of the runs that are alike the first side and of those that are alike the second."""
    times = {run.run_id: str(run.manifest["created"]) for run in around.runs}
    cells: dict[str, dict[tuple[object, ...], MeasuredCell]] = {}
    for cell in around.cells:
        if cell.comparable:
            cells.setdefault(cell.run_id, {})[same(cell)] = cell
    sides = [{same(pair[at].cells[0]): pair[at] for pair in pairs} for at in (0, 1)]
    # The two runs themselves are among them, or count no less.
    found: list[dict[str, list[MeasuredCell]]] = [{}, {}]
    for at, side in enumerate(sides):
        for run in sorted(cells, key=lambda run: (times[run], run)):
            ours = [cells[run].get(name) for name in side]
            if all(
                one is not None and not differences(Side((one,)), side[name])
                for one, name in zip(ours, side, strict=True)
            ):
                found[at][run] = [one for one in ours if one is not None]
    if found[0].keys() != found[1].keys():
        return [_levels(runs.values()) for runs in found if runs]
    order = list(found[0])
    ends = sorted(order.index(pair.cells[0].run_id) for pair in pairs[0] if pair.cells[0].run_id in found[0])
    if len(ends) < 2:
        return []
    levels = _levels(found[0].values())
    splits = ([levels[:at], levels[at:]] for at in range(ends[0] + 1, ends[1] + 1))
    return min(splits, key=lambda parts: sum(float(np.sum((part - part.mean(axis=0)) ** 2)) for part in parts))


def _levels(runs: Iterable[Sequence[MeasuredCell]]) -> Array:
    return np.array([[level_of(cell) for cell in cells] for cells in runs])


def level_of(cell: MeasuredCell) -> float:
    """The logarithm of a cell's step time as the report of its run prints it. The cell must have one."""
    if cell.step is None:
        raise ValueError(f"{cell.name} has no step time")
    return math.log(cell.step.value)


def _in_sessions(ratio: Estimate, sessions: Sessions) -> Estimate:
    """The ratio with an interval that has room for what two sessions differ by."""
    if ratio.error is None or ratio.freedom is None:
        return statistics.beside(ratio, 0.0, sessions.between_two)
    ratio = _at_least_own(ratio, sessions)
    return _with_parts(ratio, [(ratio.error or 0.0, ratio.freedom or 1.0), (sessions.between_two, sessions.freedom)])


def _at_least_own(ratio: Estimate, sessions: Sessions) -> Estimate:
    """The ratio with at least the error that other runs show, or that is assumed, of one cell beside the others."""
    own = math.sqrt(2) * sessions.own
    return ratio if own <= (ratio.error or 0.0) else statistics.with_error(ratio, own, sessions.own_freedom)


def _with_parts(ratio: Estimate, parts: Sequence[tuple[float, float]]) -> Estimate:
    """The ratio with the error of all parts: each a standard error and its degrees of freedom (Satterthwaite's of the sum)."""
    variance = sum(error**2 for error, _ in parts)
    spread = sum(error**4 / freedom for error, freedom in parts)
    freedom = min(1e6, variance**2 / spread) if spread else 1e6
    rest = math.sqrt(max(0.0, variance - (parts[0][0]) ** 2))
    inside = replace(ratio, inside=math.hypot(ratio.inside or 0.0, rest))
    return statistics.with_error(inside, math.sqrt(variance), freedom)


def _beside(row: Contrast, ratio: Estimate | None, shift: CommonShift) -> Contrast:
    """The row with its ratio beside the shift, where nearly all cells moved by it and repeats say how sure the ratio is."""
    if not shift.agreed or ratio is None or ratio.error is None or shift.sessions is None:
        return row
    known = _at_least_own(ratio, shift.sessions)
    log, error = math.log(shift.ratio.value), shift.ratio.inside or 0.0
    return replace(row, beside=statistics.beside(known, log, error, estimated=True))


def _common(
    rows: Sequence[Contrast], all_ratios: Sequence[Estimate | None], sessions: Sessions, margin: float
) -> CommonShift | None:
    """The common move of the rows: the median of the ratios' logarithms. None where there is one ratio or none.

    A row moved with it if it is nearer to the shift than the shift is far from no change, or lies within three standard errors.
    The shift's own error comes from the repeats and from how far the cells' ratios differ, whichever is larger.
    """
    ratios = [ratio for ratio in all_ratios if ratio is not None and ratio.low is not None]
    if len(ratios) < 2:
        return None
    logs = np.log([ratio.value for ratio in ratios])
    errors = np.array([max(ratio.error or 0.0, ratio.inside or 0.0) for ratio in ratios])
    shift, scatter = float(np.median(logs)), float(np.median(errors))
    error = _MEDIAN * scatter / math.sqrt(len(ratios))
    moved = int(np.sum(np.abs(logs - shift) <= np.maximum(abs(shift) / 2, 3 * np.hypot(errors, error))))
    unlike = _OF_DEVIATIONS * float(np.median(np.abs(logs - shift)))
    error = _MEDIAN * max(scatter, unlike) / math.sqrt(len(ratios))
    windows, repeats = min(ratio.windows for ratio in ratios), min(ratio.repeats for ratio in ratios)
    middle = Estimate(math.exp(shift), None, None, windows, repeats, "median of the cells' ratios", "", inside=0.0)
    ratio = _with_parts(middle, [(error, len(ratios) - 1), (sessions.between_two, sessions.freedom)])
    facts = [row.differences for row in rows]
    alike = tuple(fact for fact in facts[0] if all(fact in row for row in facts))
    return CommonShift(replace(ratio, inside=error), moved, len(ratios), sessions, alike, margin)


def _without_drift(pairs: Sequence[tuple[Side, Side]]) -> list[Estimate | None]:
    """The ratio of each pair, whose error is without what moved all cells from one repeat to the next.

    Where a side has one repeat, nothing says how much another one would differ: the ratio has no error.
    """
    before, after = (_levelled(sides) for sides in zip(*pairs, strict=True)) if pairs else ([], [])
    ratios = [
        _as_printed(statistics.ratio_estimate(new, old, alike=True), *pair)
        for new, old, pair in zip(after, before, pairs, strict=True)
    ]
    quiet = _quiet(pairs, ratios)
    drawn = dict(zip(quiet, moderated_ratios([pairs[at] for at in quiet], [ratios[at] for at in quiet]), strict=True))
    return [drawn.get(at, ratio) for at, ratio in enumerate(ratios)]


def _quiet(pairs: Sequence[tuple[Side, Side]], ratios: Sequence[Estimate | None]) -> list[int]:
    """The places of the pairs that are not loud, as runner.results.rank.blocks has it: one bad repeat is not the noise of all rows."""
    variances = {
        at: ((ratio.error or 0.0) ** 2 / sum(1 / len(side.repeats) for side in pairs[at]), ratio.freedom)
        for at, ratio in enumerate(ratios)
        if ratio is not None and ratio.freedom
    }
    left, loud = dict(variances), set[int]()
    for _ in range(len(variances) // 3):
        loudest = max(left, key=lambda at: left[at][0])
        variance, own = left.pop(loudest)
        freedom = sum(of_one for _, of_one in left.values())
        common = sum(one * of_one for one, of_one in left.values()) / freedom
        if common and student.variance_tail(variance / common, own, freedom) < LOUD / len(variances):
            loud = variances.keys() - left.keys()
    return [at for at in range(len(ratios)) if at not in loud]


def _as_printed(ratio: Estimate | None, before: Side, after: Side) -> Estimate | None:
    """The ratio as the quotient of the two step times, with an error only where both sides have repeats."""
    if ratio is None or before.step is None or after.step is None:
        return ratio
    ratio = statistics.moved(ratio, after.step.value / before.step.value)
    return ratio if ratio.repeats > 1 else replace(ratio, error=None, freedom=None)


def _levelled(sides: Sequence[Side]) -> list[list[Timings]]:
    """The windows of each side's repeats, divided by what moved all cells of the run in that repeat's block.

    The repeats of a number are one block: the run measured them close together. Cells that lack a block say nothing about
    the drift between blocks, whose mean is 0: it leaves the level of every other cell. With fewer than three complete cells
    the windows stay as they are.
    """
    numbers = sorted({repeat.number for side in sides for repeat in side.repeats})
    logs = np.array(
        [
            statistics.log_levels([repeat.steady for repeat in sorted(side.repeats, key=lambda one: one.number)])
            for side in sides
            if sorted(repeat.number for repeat in side.repeats) == numbers
        ]
    )
    drift: Mapping[int, float] = dict.fromkeys(numbers, 0.0)
    if len(logs) >= 3:
        moved = np.median(logs - logs.mean(axis=1, keepdims=True), axis=0)
        drift = dict(zip(numbers, (moved - moved.mean()).tolist(), strict=True))
    return [[repeat.steady.scaled(math.exp(-drift[repeat.number])) for repeat in side.repeats] for side in sides]
