"""Which of some cells are slower than which: the one place where the step times of a run are held against each other.

Pure functions. The report, the comparison of two cells of one run and the schedule of a run ask here, so none of them says
otherwise than another.

Cells with two repeats or more are judged among themselves. One is out if it is slower than any other beyond doubt. All pairs count as
questions (Tukey), and one that is out no longer counts when the others are judged (Newman 1939, Keuls 1952). A cell with one repeat is
held against the first beside them: how much another run of it would differ is taken from the other cells of its run. It decides nothing
about the others, and nothing of it is confirmed.

A verdict is about another run of the same cells as well. So each ratio has room for what one cell's level may move from one session to the
next while the others stay (OWN_DEVIATION).

The step time of a cell, as everything prints it, is without what moved all cells of its run at the time (`levelled`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np

from runner.results import statistics, student
from runner.results.cells import StoredCell
from runner.results.rank.blocks import ROUNDING, Blocks, InBlock, Scatter, moderated_scatter
from runner.results.statistics import ALPHA, LEVEL, Array, Estimate, of_kind

Name = TypeVar("Name", bound=Hashable)
Cell = TypeVar("Cell", bound=StoredCell)

# slower and faster: beyond doubt, by however little. same: not so, and the interval lies inside the margin. open: the data do not say.
Verdict = Literal["slower", "faster", "same", "open"]

MARGIN = 0.05  # a smaller difference does not matter

# Standard deviation of what one cell's log level moves from one session to the next while the other cells stay. Assumed, not measured:
# the memory that a process gets and where its threads run differ. Repeats of one session do not show it, several sessions do. No GPU has
# shown that it is less there, so it is one number for all devices.
OWN_DEVIATION = 0.01

# By what share a machine may become slower or faster between two groups of blocks of one run: heat, clocks, other work. Two cells that no
# block holds are told apart only where their ratio is beyond it (docs/statistics.md).
DRIFT = 0.05

# The chance of a false claim of a table of three cells or more, where a report has several: two tables then err in less than 8 %.
OF_SEVERAL = 0.04

# A repeat this many usual distances from its cell's median is far. Of normal noise 1 repeat in 1 000 lies there.
FAR = 5.0

# The most repeats to advise.
MOST_ADVISED = 30

OTHER_RUNS = "no run measured both"
OTHER_TIME = "measured at another time of the run"
ONCE = "measured once"


@dataclass(frozen=True)
class Contender:
    """One cell as numbers. Times are logarithms of seconds."""

    log: float  # of its step time: what it has in its blocks
    logs: Sequence[float]  # of its repeats' levels
    inside: float  # standard error of `log` as its windows show it
    sessions: frozenset[Hashable]  # that measured it
    means: Mapping[Hashable, float] = field(default_factory=dict)  # of `logs` in each session
    scatter: float = 0.0  # of the logarithms of its windows, or of repeats in other stored runs if that is more

    @property
    def once(self) -> bool:
        return len(self.logs) == 1


@dataclass(frozen=True)
class Pair:
    """One cell beside another: the ratio of their step times with the interval that the verdict rests on, and the verdict.

    `p` is the chance of so large a ratio if both were equal, adjusted for all questions. None where the data give none, or of one repeat.
    """

    ratio: Estimate
    p: float | None
    verdict: Verdict
    once: bool  # whether a side has one repeat
    # Of one repeat: nothing that was measured shows how far repeats differ, so it is assumed.
    assumed: bool = False

    @property
    def at_least(self) -> float | None:
        """How many times as long the first side takes at least, where one repeat shows that it takes longer; else None."""
        return self.ratio.low if self.once and self.ratio.low is not None and self.ratio.low > 1 else None


@dataclass(frozen=True)
class Field:
    """Some cells that may be compared, by the names that `blocks` has for them."""

    cells: Mapping[Hashable, Contender]
    blocks: Blocks
    device_kind: str
    # Of two cells, by how much the logarithm of their ratio may be less, and more, than what was looked at shows. None: by nothing.
    unseen: Callable[[Hashable, Hashable], tuple[float, float]] | None = None
    # The chance of a false claim about equal cells that its questions together are to have.
    level: float = ALPHA

    @cached_property
    def order(self) -> Sequence[Hashable]:
        """The cells, the one with the shortest step time first."""
        return sorted(self.cells, key=lambda name: self.cells[name].log)

    @cached_property
    def repeated(self) -> Sequence[Hashable]:
        """Those with two repeats or more, in that order."""
        return [name for name in self.order if not self.cells[name].once]

    @cached_property
    def first(self) -> Hashable:
        """The cell that the others are held against: of those that no other is faster than, the one beside which most are slower.

        That is mostly the fastest. One whose bad repeat leaves all of its pairs open is no measure of the others.
        """
        if not self.repeated:
            return self.order[0]
        leaders = [name for name in self.repeated if name not in self.out]
        return max(
            leaders, key=lambda one: sum(self.between(name, one, first=one).verdict == "slower" for name in self.out)
        )

    @property
    def out(self) -> Mapping[Hashable, Hashable]:
        """Each cell that is slower than some other one beyond doubt, with the fastest of those that show it."""
        return self._stages[1]

    @cached_property
    def places(self) -> Mapping[Hashable, Pair]:
        """Each cell but the first beside it."""
        return {name: self.between(name, self.first) for name in self.order if name != self.first}

    def between(self, above: Hashable, below: Hashable, margin: float = MARGIN, first: Hashable | None = None) -> Pair:
        """Any two of the cells. `margin` is the smallest difference that matters."""
        if above == (self.first if first is None else first):
            return _turned(self.between(below, above, margin, above))
        among = self._stages[0]
        return self._pair(above, below, max(among.get(above, 0), among.get(below, 0)), margin)

    def repeats_to_tell(self, above: Hashable, below: Hashable, margin: float = MARGIN) -> int | None:
        """With how many repeats of each the order of two cells would no longer be open, if all scatter as those that were measured.

        None: more than MOST_ADVISED, or none would tell. The other cells count as questions as they do now.
        """
        ratio, known = self._ratio(above, below), self._of_sessions(above, below).deviation
        # Further repeats of both are measured at one time.
        later = self._of_sessions(above, below, at_one_time=True).deviation
        error, freedom, inside = ratio.error or 0.0, ratio.freedom or 1.0, ratio.inside or 0.0
        # More repeats of a clock that is too coarse say the same.
        if statistics.p_value(ratio) is None:
            return None
        asked = self._questions(above, below, ratio, len(self.repeated))
        for count in range(ratio.repeats + 1, MOST_ADVISED + 1):
            left = ratio.repeats / count
            narrow = replace(ratio, inside=math.hypot(later, math.sqrt(max(0.0, inside**2 - known**2) * left)))
            narrow_error = math.hypot(later, math.sqrt(max(0.0, error**2 - known**2) * left))
            told = statistics.with_error(narrow, narrow_error, freedom / left, 1 - ALPHA / asked)
            alone = statistics.with_error(narrow, narrow_error, freedom / left)
            if not (told.low or 0.0) <= 1 <= (told.high or math.inf) or within(alone, margin):
                return count
        return None

    @cached_property
    def _ratios(self) -> dict[tuple[Hashable, Hashable], Estimate]:
        """The ratios of the pairs that were asked for so far."""
        return {}

    @cached_property
    def _stages(self) -> tuple[Mapping[Hashable, int], Mapping[Hashable, Hashable]]:
        """Among how many cells each one is judged, and for each that is out the cell that is faster.

        The slowest are told first, and then no longer count. Of those that are truly equal, the one that is wrongly called slower first was
        judged while all of them still counted.
        """
        left = list(self.repeated)
        among, out = dict.fromkeys(left, len(left)), dict[Hashable, Hashable]()
        while found := {name: faster for name in left if (faster := self._faster(name, left)) is not None}:
            out |= found
            left = [name for name in left if name not in found]
            among |= dict.fromkeys(left, len(left))
        return among, out

    def _faster(self, name: Hashable, left: Sequence[Hashable]) -> Hashable | None:
        """The first of these cells that is faster than one of them beyond doubt; None where there is none."""
        faster = left[: left.index(name)]
        return next((other for other in faster if self._pair(name, other, len(left)).verdict == "slower"), None)

    def _pair(self, above: Hashable, below: Hashable, among: int, margin: float = MARGIN) -> Pair:
        once = self.cells[above].once or self.cells[below].once
        ratio = self._ratio(above, below)
        asked = self._questions_once() if once else self._questions(above, below, ratio, among)
        p = statistics.p_value(ratio)
        adjusted = None if p is None or once else min(1.0, asked * p)
        wide = statistics.with_error(ratio, ratio.error or 0.0, ratio.freedom or 1.0, 1 - ALPHA / asked)
        down, up = self.unseen(above, below) if self.unseen is not None else (0.0, 0.0)
        if drift := self._drift(above, below):
            down, up = down + drift, up + drift
        if down or up:
            ratio, wide = (_reaching(one, down, up) for one in (ratio, wide))
        if statistics.told_apart(adjusted) and not (wide.low or 0.0) <= 1.0 <= (wide.high or math.inf):
            return Pair(wide, adjusted, "slower" if ratio.value > 1 else "faster", once=False)
        if p is not None and not once and within(ratio, margin):
            return Pair(ratio, adjusted, "same", once=False)
        return Pair(wide, adjusted, "open", once, assumed=once and not self._usual.observed)

    def _questions_once(self) -> float:
        """As how many questions those on cells of one repeat count: each is asked by itself (Bonferroni). Where no cell has more, any might
        have been the first."""
        count = len(self.cells) - len(self.repeated)
        return max(1, count if self.repeated else count * (count - 1) // 2)

    def _questions(self, above: Hashable, below: Hashable, ratio: Estimate, among: int) -> float:
        """As how many questions the pairs of so many cells count. Within blocks they share one variance (Tukey), else each counts."""
        if self.blocks.difference(above, below) is None:
            asked = float(max(1, among * (among - 1) // 2))
        else:
            asked = student.questions(among, ratio.freedom or 1.0, self.level)
        return asked * ALPHA / self.level

    def _ratio(self, above: Hashable, below: Hashable) -> Estimate:
        """The quotient of the two step times, with the 95 % interval of this pair alone."""
        if (above, below) not in self._ratios:
            self._ratios[above, below] = self._quotient(above, below)
        return self._ratios[above, below]

    def _quotient(self, above: Hashable, below: Hashable) -> Estimate:
        first, second = self.cells[above], self.cells[below]
        within_blocks = self.blocks.difference(above, below)
        if first.once or second.once:
            sides = [self._scatter_of(name) for name in (above, below)]
            method, note = "one repeat, with the scatter of the run's other cells", ONCE
        elif within_blocks is not None:
            sides = [Scatter(within_blocks.error, within_blocks.freedom, 0)]
            method, note = "levels of the repeats within blocks, Student's t", ""
        else:
            sides = [_own(cell.logs) for cell in (first, second)]
            method, note = "levels of the repeats, Welch's t", ""
        inside = math.hypot(first.inside, second.inside)
        # Without scatter the clock is too coarse for any claim.
        if inside or any(side.deviation > ROUNDING for side in sides):
            of_sessions = self._of_sessions(above, below)
            sides.append(of_sessions)
            inside = math.hypot(inside, of_sessions.deviation)
        error = math.hypot(*(side.deviation for side in sides))
        error = error if error > ROUNDING else 0.0
        freedom = _freedom(sides, doubted=within_blocks is not None and within_blocks.doubted) if error else 1e6
        repeats = min(len(first.logs), len(second.logs))
        value = math.exp(first.log - second.log)
        ratio = Estimate(value, value, value, repeats, repeats, method, note, error, freedom, inside)
        if self._apart(above, below):
            ratio = statistics.noted(ratio, OTHER_RUNS if first.sessions.isdisjoint(second.sessions) else OTHER_TIME)
        return statistics.with_error(ratio, error, freedom)

    def _apart(self, above: Hashable, below: Hashable) -> bool:
        """True if no block holds a repeat of both cells: other runs measured them, or the same run at another time."""
        if not self.cells[above].sessions & self.cells[below].sessions:
            return True
        blocks = [{one.block for one in self.blocks.logs.get(name, ())} for name in (above, below)]
        return all(blocks) and blocks[0].isdisjoint(blocks[1])

    def _drift(self, above: Hashable, below: Hashable) -> float:
        """By how much the logarithm of the ratio of two cells of one session may be the drift of the machine.

        Of repeats in blocks that hold one cell and not the other, as far as the fit of the blocks does not take them out.
        """
        if (
            not self.cells[above].sessions & self.cells[below].sessions
            or self.blocks.difference(above, below) is not None
        ):
            return 0.0
        mine, theirs = ([one.block for one in self.blocks.logs.get(name, ())] for name in (above, below))
        if not mine or not theirs:
            return 0.0
        alone = max(
            1 - sum(block in others for block in own) / len(own) for own, others in ((mine, theirs), (theirs, mine))
        )
        return alone * math.log1p(DRIFT)

    def _of_sessions(self, above: Hashable, below: Hashable, *, at_one_time: bool = False) -> Scatter:
        """How far the log ratio of two cells is their sessions': further repeats do not narrow it."""
        first, second = self.cells[above], self.cells[below]
        own = OWN_DEVIATION
        counts = sum(1 / max(1, len(cell.sessions)) for cell in (first, second))
        if not at_one_time and first.sessions.isdisjoint(second.sessions):
            both = math.hypot(own, of_kind(statistics.SESSION_DEVIATION, self.device_kind))
            return Scatter(both * math.sqrt(counts), math.inf, 0)
        # Several sessions that measured both show how far their difference moves. The repeats' scatter is a part of that.
        moved = [first.means[session] - second.means[session] for session in first.means if session in second.means]
        if len(moved) < 2:
            return Scatter(own * math.sqrt(counts), math.inf, 0)
        shown = moderated_scatter(math.sqrt(2) * own, float(np.var(moved)) * len(moved), len(moved) - 1)
        return Scatter(shown.deviation / math.sqrt(len(moved)), shown.freedom, shown.observed)

    def _scatter_of(self, name: Hashable) -> Scatter:
        """The error of a cell's step time beside one of one repeat: as its run's cells scatter, or as it does itself if that is more."""
        logs, usual = self.cells[name].logs, self._usual
        own = _own(logs) if len(logs) > 1 else Scatter(0.0, 1.0, 0)
        shown = Scatter(usual.deviation / math.sqrt(len(logs)), usual.freedom, usual.observed)
        return own if own.deviation > shown.deviation else shown

    @cached_property
    def _usual(self) -> Scatter:
        shown = statistics.median(np.array([cell.scatter for cell in self.cells.values()]))
        return usual_scatter(self.blocks, self.device_kind, shown)


def among_tables(fields: Sequence[Field]) -> list[Field]:
    """The fields of one report. Where several have questions, those of more than two cells ask theirs at OF_SEVERAL.

    A field of two cells asks one question, and at ALPHA: of two images a person asks at each workload by itself.
    """
    if sum(len(field.repeated) > 1 for field in fields) < 2:
        return list(fields)
    return [replace(field, level=OF_SEVERAL) if len(field.repeated) > 2 else field for field in fields]


def _freedom(sides: Sequence[Scatter], *, doubted: bool) -> float:
    """Degrees of freedom of the sum of these errors, by Satterthwaite. Where a side is doubted they are those of Cochran and Cox
    (Experimental Designs, 1957, 4.14), to the first order: the shares of the variance count, and not their squares."""
    power = 2 if doubted else 4
    spread = sum(side.deviation**power / side.freedom for side in sides)
    return min(1e6, math.hypot(*(side.deviation for side in sides)) ** power / spread) if spread else 1e6


def usual_scatter(blocks: Blocks, device_kind: str, shown: float) -> Scatter:
    """How far another repeat would lie from the only one of a cell, measured at another time of the run.

    Where no cell has two repeats it is assumed, and is not less than what is `shown`: how windows scatter within repeats, which on a busy
    machine is as much, or how repeats did in other stored runs of the machine.
    """
    assumed = [of_kind(figures, device_kind) for figures in (statistics.REPEAT_DEVIATION, statistics.SESSION_DEVIATION)]
    usual = blocks.scatter(math.hypot(*assumed))
    return usual if usual.observed else blocks.scatter(math.hypot(max(assumed[0], shown), assumed[1]))


def scatter_by_model(cells: Iterable[StoredCell]) -> dict[str, float]:
    """Device model -> the standard deviation of the log levels of repeats, over those of these cells that have two or more."""
    by_model: dict[str, dict[Hashable, Sequence[InBlock]]] = {}
    for cell in cells:
        if cell.ranked and (logs := in_blocks([cell])):
            by_model.setdefault(cell.key.device_model, {})[cell.run_id, cell.cell_id] = logs
    return {model: Blocks(logs).scatter(0.0).deviation for model, logs in by_model.items()}


def bad_repeats(cells: Mapping[Name, Sequence[InBlock]]) -> Mapping[Name, int]:
    """The cells of which one repeat lies far from their median, and no other repeat does; each with the place of that repeat.

    Far is beyond the margin, and beyond FAR times as far as repeats of these cells lie from their median, in the median.
    """
    apart: dict[Name, Array] = {}
    for name, repeats in cells.items():
        logs = np.array([repeat.log for repeat in repeats])
        if len(logs) > 2:
            apart[name] = np.abs(logs - np.median(logs))
    # Without the nearest of each cell, which mostly is the median itself.
    usual = [one for of_cell in apart.values() for one in sorted(of_cell)[1:]]
    far = max(math.log1p(MARGIN), FAR * float(np.median(usual or [0.0])))
    return {name: int(np.argmax(one)) for name, one in apart.items() if sorted(one)[-2] <= far < max(one)}


def within(ratio: Estimate, margin: float) -> bool:
    """True if the ratio's interval lies inside the margin, which is the same factor up and down."""
    return ratio.low is not None and ratio.high is not None and 1 / (1 + margin) < ratio.low and ratio.high < 1 + margin


def _reaching(ratio: Estimate, down: float, up: float) -> Estimate:
    """The ratio with an interval that reaches so much farther, as logarithms."""
    low, high = ratio.low and ratio.low * math.exp(-down), ratio.high and ratio.high * math.exp(up)
    return replace(ratio, low=low, high=high)


def _own(logs: Sequence[float]) -> Scatter:
    """The error of a mean, as its repeats show it."""
    return Scatter(float(np.std(logs, ddof=1)) / math.sqrt(len(logs)), len(logs) - 1, len(logs) - 1)


def _turned(pair: Pair) -> Pair:
    """The pair with its sides exchanged."""
    other: Mapping[Verdict, Verdict] = {"slower": "faster", "faster": "slower", "same": "same", "open": "open"}
    return replace(pair, ratio=statistics.inverted(pair.ratio), verdict=other[pair.verdict])


# -- Stored cells ------------------------------------------------------------------------------------------------------------------


def in_blocks(cells: Iterable[StoredCell]) -> Sequence[InBlock]:
    """Each repeat of the cells in its block. Empty for one repeat, which shows no noise.

    A block is the repeats of one number in one run on one model of device. What was measured before the run was resumed is in
    another block, and another session, than the rest: time has passed between them.
    """
    repeats = [
        in_block(cell, at, (repeat.row.get("run_id"), cell.key.device_model, repeat.reused))
        for cell in cells
        for at, repeat in enumerate(cell.measured)
    ]
    return repeats if len(repeats) > 1 else ()


def in_block(cell: StoredCell, at: int, session: Hashable) -> InBlock:
    """One of the measured repeats of a cell, in its block."""
    repeat, log = cell.measured[at], float(cell.log_levels[at])
    return InBlock((session, repeat.number), log, session, repeat.began, (cell.image, cell.framework, cell.mode))


def levelled_run(cells: Sequence[StoredCell]) -> list[StoredCell]:
    """The cells of one run, each with the step time that the run's report prints."""
    blocks = Blocks({cell.cell_id: logs for cell in cells if cell.ranked and (logs := in_blocks([cell]))})
    return [levelled(cell, blocks, cell.cell_id) if cell.ranked else cell for cell in cells]


def levelled(cell: Cell, blocks: Blocks, name: Hashable) -> Cell:
    """The ranked cell with its step time beside the other cells of its run. `name` is its own in the blocks.

    With repeats that blocks join it is without what its blocks did. The interval of one repeat has room for how much another would
    differ, as the other cells of the run show it.
    """
    step, level = cell.step, blocks.level(name)
    if step is None:
        return cell
    if level is not None:
        return replace(cell, step=statistics.moved(step, math.exp(level)))
    if len(cell.measured) > 1 or step.low is None or cell.own_width is not None:
        return cell
    usual = usual_scatter(blocks, cell.key.device_kind, max(cell.scatter, cell.seen_scatter))
    reach = student.student_quantile((1 + LEVEL) / 2, min(usual.freedom, 1e6)) * usual.deviation
    ends = [math.exp(math.hypot(reach, math.log(end / step.value))) for end in (step.low, step.high or step.value)]
    wider = replace(step, low=step.value / ends[0], high=step.value * ends[1])
    return replace(cell, step=wider, own_width=step.half_width)
