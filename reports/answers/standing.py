"""The standing of a group of comparable cells, decided once: the leaders, the slower cells with their ratios, and the open ones with why.

The findings, the first screen, the tables, Markdown, the terminal and the page print this. None of them decides it again.
`standing_words` has its sentences, `leads` the answers over several groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.data.model import Group, MeasuredCell, Ranked
from reports.wording import number
from runner.results import statistics
from runner.results.cells import MISSING


@dataclass(frozen=True)
class Rival:
    """A cell that is measured and not ranked, and may be as fast as the first."""

    cell: MeasuredCell
    times: float  # how many times as fast as the first it looks
    faster: bool  # all of its windows, or all of its interval, lie below the first's

    @property
    def looks(self) -> str:
        return f"looks {number(self.times)} times as fast" if self.faster else "may be as fast"

    def __str__(self) -> str:
        return f"{self.cell.label} {self.looks} (not ranked: {few_words(self.cell.unranked)})"


def few_words(why: str, most: int = 70) -> str:
    """Why a cell is not ranked, as far as a sentence has room."""
    return why if len(why) <= most else f"{why[: most - 1].rstrip()}…"


@dataclass(frozen=True)
class Standing:
    """The ranked cells of one group by what is known of them beside the first, the fastest of those with two repeats or more.

    If no cell has two repeats the first is the fastest of those with one, and all others are in `once`.
    """

    first: Ranked
    same: tuple[Ranked, ...]  # as fast within the margin
    open: tuple[Ranked, ...]  # not known to be slower, nor as fast
    slower: tuple[Ranked, ...]  # beyond doubt
    once: tuple[Ranked, ...]  # a side was measured once
    rivals: tuple[Rival, ...] = ()  # not ranked, and perhaps as fast as the first, or faster
    behind: tuple[MeasuredCell, ...] = ()  # not ranked, and slower by all that was measured
    failed: tuple[MeasuredCell, ...] = ()  # without a figure, so nobody knows how fast they are
    unrun: tuple[MeasuredCell, ...] = ()  # planned, and not measured yet
    starved: tuple[MeasuredCell, ...] = ()  # got so few of their CPUs that the order is open

    @property
    def repeated(self) -> bool:
        """True if some cell has two repeats or more, so that something can be confirmed."""
        return len(self.first.cell.measured) > 1

    @property
    def alone(self) -> bool:
        """True if one framework has repeats here, and nothing else that could be held against it."""
        return self.repeated and not self.slower and len({entry.cell.framework for entry in self.level}) == 1

    @property
    def level(self) -> tuple[Ranked, ...]:
        """The first, and the cells beside it that are not slower: they may each be the fastest of those with repeats."""
        return (self.first, *self.same, *self.open)

    @property
    def rivals_once(self) -> tuple[Ranked, ...]:
        """The cells with one repeat that may be as fast as the first, or faster, as far as one repeat shows."""
        return tuple(entry for entry in self.once if entry.at_least is None)

    @property
    def faster_once(self) -> tuple[Ranked, ...]:
        """Those of them that one repeat shows to be faster than the first, which has more."""
        return tuple(entry for entry in self.once if self.repeated and entry.looks_faster)

    @property
    def rivals_once_beside(self) -> bool:
        """True if one of them is of a framework that has no repeats here."""
        repeated = {entry.cell.framework for entry in (*self.level, *self.slower)}
        return any(entry.cell.framework not in repeated for entry in self.rivals_once)

    @property
    def out_once(self) -> tuple[Ranked, ...]:
        """The cells with one repeat, which shows that they take longer."""
        return tuple(entry for entry in self.once if entry.at_least is not None)

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that may be the fastest, those with one repeat included; the first's own comes first."""
        cells = (*(entry.cell for entry in (*self.level, *self.rivals_once)), *(rival.cell for rival in self.rivals))
        return tuple(dict.fromkeys(cell.framework for cell in cells))

    @property
    def ranked(self) -> int:
        """How many cells the order is of."""
        return len(self.level) + len(self.slower) + len(self.once)

    @property
    def is_won(self) -> bool:
        """True if the first's framework is faster beyond doubt than every other one with repeats."""
        rivals = [entry for entry in (*self.same, *self.open) if entry.cell.framework != self.first.cell.framework]
        return self.repeated and not rivals and bool(self.slower)

    @property
    def out(self) -> dict[str, Ranked]:
        """Framework -> its fastest cell, of those frameworks of which every cell is slower beyond doubt."""
        left = {entry.cell.framework for entry in (*self.level, *self.once)}
        found: dict[str, Ranked] = {}
        for entry in self.slower:
            if entry.cell.framework not in left:
                found.setdefault(entry.cell.framework, entry)
        return found

    def surely_out(self, questions: int) -> dict[str, Ranked]:
        """Those of `out` that are slower beyond doubt if one sentence asks about `questions` groups (Bonferroni)."""
        return {
            name: entry
            for name, entry in self.out.items()
            if entry.p is not None and questions * entry.p < statistics.ALPHA
        }

    @property
    def p(self) -> float:
        """The chance that the first's framework is wrongly called the fastest of those with repeats; 1 where it is not."""
        values = [
            entry.p
            for entry in self.slower
            if entry.cell.framework != self.first.cell.framework and entry.p is not None
        ]
        return max(values, default=1.0) if self.is_won else 1.0


def standing(group: Group, waiting: Sequence[MeasuredCell] = ()) -> Standing:
    """The standing of a group that has a ranked cell. Of the modes of a framework it is that of the fastest. `waiting`: planned cells of
    the group that have not been run."""
    behind = _of_fastest_modes(group)
    once = tuple(entry for entry in behind if entry.once)
    of = {
        verdict: tuple(entry for entry in behind if not entry.once and entry.verdict == verdict)
        for verdict in ("same", "open", "slower")
    }
    # A cell that was measured once decides nothing, whatever CPUs it got.
    judged = {group.first.cell.anchor, *(entry.cell.anchor for entry in of["open"])}
    starved = tuple(cell for cell in group.unsettled if cell.anchor in judged) if of["open"] else ()
    failed = tuple(cell for cell in group.others if cell.step is None and cell.status != MISSING)
    rivals, behind_all = contradicting(group)
    return Standing(
        group.first, of["same"], of["open"], of["slower"], once, rivals, behind_all, failed, tuple(waiting), starved
    )


def _of_fastest_modes(group: Group) -> tuple[Ranked, ...]:
    """The cells behind the first, without a mode of a framework that is slower than another one in the same image, on the same GPU.

    A mode with one repeat takes no other's place, as another run of it may be slower.
    """
    found: dict[tuple[str, ...], list[Ranked]] = {}
    for entry in group.ranked:
        cell = entry.cell
        faster = found.setdefault((cell.image, cell.framework, cell.engine, cell.uuid), [])
        many = len(entry.cell.measured) > 1
        if not any(len(other.cell.measured) > 1 or not many for other in faster):
            faster.append(entry)
    left = {entry.cell.anchor for entries in found.values() for entry in entries}
    return tuple(entry for entry in group.behind if entry.cell.anchor in left)


def contradicting(group: Group) -> tuple[tuple[Rival, ...], tuple[MeasuredCell, ...]]:
    """The cells that are measured and not ranked: those that could contradict an order, since they may be as fast as the first, and those
    that are slower all the same."""
    first = group.first.cell.step
    rivals, behind = [], []
    for cell in group.others:
        if cell.step is None or first is None:
            continue
        # Without an interval the fastest of its windows bounds it.
        low = cell.step.low or min(float(repeat.steady.step_seconds.min()) for repeat in cell.measured)
        if low <= (first.high or first.value):
            high = cell.step.high or max(float(repeat.steady.step_seconds.max()) for repeat in cell.measured)
            rivals.append(Rival(cell, first.value / cell.step.value, high < (first.low or first.value)))
        else:
            behind.append(cell)
    return tuple(rivals), tuple(behind)


def is_won_among(standings: Sequence[Standing]) -> list[bool]:
    """For each group whether its first is the fastest beyond doubt, as one sentence on all of them may say it.

    That one framework is the fastest of each is false only where a part is, so each part is asked by itself (Berger 1982, the
    intersection-union test). Otherwise the sentence may choose its parts, and they are asked together (Holm).
    """
    chances = [one.p for one in standings]
    if len({one.first.cell.framework for one in standings}) == 1 and max(chances) < statistics.ALPHA:
        return [True] * len(chances)
    return [p < statistics.ALPHA for p in statistics.holm(chances)]


def questions_of(standings: Sequence[Standing]) -> list[int]:
    """For each group how many questions `surely_out` divides the error among, if one sentence is about all of these groups.

    A group at which every other framework is behind its first beyond doubt has used no error: its part goes to the others, as Holm's
    procedure hands it on (Bretz and others 2009, a graph of equal weights). So a framework that a section calls slower is rarely among
    those that the headline says may be the fastest.
    """
    found = [len(standings)] * len(standings)
    left = list(range(len(standings)))
    while left:
        won = [at for at in left if not standings[at].rivals and len(left) * standings[at].p < statistics.ALPHA]
        for at in left:
            found[at] = len(left)
        if not won:
            break
        left = [at for at in left if at not in won]
    return found
