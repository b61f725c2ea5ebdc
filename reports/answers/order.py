"""By how much one framework leads the next, and at which workloads two of them change places: the questions that any machine answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from reports.answers.standing import Standing
from reports.data.model import Group, MeasuredCell
from reports.wording import between_ratios, framework_name, listing, number, too_wide
from runner.results import statistics
from runner.results.rank.ranking import Pair

MOST_WORKLOADS = 2  # named in a card


@dataclass(frozen=True)
class Lead:
    """How far the others are behind, in words and in detail. `told`: some of them beyond doubt."""

    words: str
    detail: str
    told: bool


def by_how_much(compared: Sequence[tuple[Group, Standing]]) -> Lead:
    """How many times as long the frameworks take that are slower beyond doubt, over all of these groups."""
    told: dict[str, list[tuple[str, float, str]]] = {}
    for group, of in compared:
        for framework, entry in of.surely_out(len(compared)).items():
            told.setdefault(framework, []).append((group.key.workload, entry.ratio.value, between_ratios(entry.ratio)))
    if not told:
        return _at_most([of for _, of in compared])
    # The nearest of them says by how much one leads at least; the farthest what a choice may cost.
    rows = sorted((ratio, name) for name, found in told.items() for _, ratio, _ in found)
    nearest, farthest = rows[0], rows[-1]
    far, near = number(farthest[0]), number(nearest[0])
    words = f"{framework_name(farthest[1])} takes {far} times as long"
    if len(told) > 1:
        words = f"Slower ones take {near} to {far} times" if near != far else f"Slower ones take {far} times as long"
    elif near != far:
        words = f"{framework_name(farthest[1])}: {near} to {far} times as long"
    named = list(dict.fromkeys((nearest[1], farthest[1])))
    parts = [
        f"{framework_name(name)} {listing([f'{ratio} at {workload}' for workload, ratio in _shown(told[name])])}"
        for name in named
    ]
    more = len(told) - len(named)
    return Lead(words, "; ".join([*parts, *([f"{more} more in the table"] if more else [])]), told=True)


def _at_most(compared: Sequence[Standing]) -> Lead:
    """How far the cells are apart at most, where none is slower beyond doubt in all of these groups together."""
    if not any(of.repeated for of in compared):
        return Lead("Open: measured once", "one repeat shows no bound", told=False)
    apart = [_apart(of) for of in compared]
    known = [most for most in apart if most is not None]
    if len(known) < len(apart) or not known or too_wide(1.0, max(known)):
        return Lead("Open: the repeats scatter too far", "no framework is slower beyond doubt", told=False)
    return Lead(f"Open: at most {number(max(known))} times apart", "no framework is slower beyond doubt", told=False)


def _apart(of: Standing) -> float | None:
    """How many times as long as another any cell of a group may take, by the intervals beside the first; None where one has none."""
    lows, highs = [1.0], [1.0]
    for entry in (*of.same, *of.open, *of.slower, *of.once):
        if entry.ratio.low is None or entry.ratio.high is None:
            return None
        lows.append(entry.ratio.low)
        highs.append(entry.ratio.high)
    return max(highs) / min(lows)


def _shown(found: Sequence[tuple[str, float, str]]) -> list[tuple[str, str]]:
    return [(workload, f"{number(ratio)} × ({ends})") for workload, ratio, ends in found[:MOST_WORKLOADS]]


@dataclass(frozen=True)
class Turn:
    """Two frameworks of which one is faster at some workloads and the other one at others, both beyond doubt."""

    first: str
    second: str
    at_first: tuple[str, ...]  # the workloads at which the first is faster
    at_second: tuple[str, ...]


def turns(groups: Sequence[Group]) -> tuple[Turn, ...]:
    """Each pair of frameworks that changes places between these groups. Each is judged by its fastest cell with repeats."""
    fastest = [_fastest(group) for group in groups]
    found = []
    for first, second in combinations(sorted({name for cells in fastest for name in cells}), 2):
        wins: dict[str, list[str]] = {first: [], second: []}
        for group, cells in zip(groups, fastest, strict=True):
            if first in cells and second in cells:
                pair = group.field.between(cells[first].anchor, cells[second].anchor)
                if winner := _winner(pair, first, second, len(groups)):
                    wins[winner].append(group.key.workload)
        if all(wins.values()):
            found.append(Turn(first, second, tuple(wins[first]), tuple(wins[second])))
    return tuple(found)


def _fastest(group: Group) -> Mapping[str, MeasuredCell]:
    """Framework -> its fastest cell with repeats. A cell that got few of its CPUs is none."""
    found: dict[str, MeasuredCell] = {}
    for entry in group.ranked:
        if len(entry.cell.measured) > 1 and entry.cell.cpu_share is None:
            found.setdefault(entry.cell.framework, entry.cell)
    return found


def _winner(pair: Pair, first: str, second: str, questions: int) -> str | None:
    """The faster one of two frameworks, if `questions` groups are asked together."""
    if pair.p is None or questions * pair.p >= statistics.ALPHA:
        return None
    return {"faster": first, "slower": second}.get(pair.verdict)


def in_words(turn: Turn) -> str:
    """`PyTorch is faster at gru-imdb, JAX at cnn-cifar10`."""
    return (
        f"{framework_name(turn.first)} is faster at {listing(turn.at_first[:MOST_WORKLOADS])}, "
        f"{framework_name(turn.second)} at {listing(turn.at_second[:MOST_WORKLOADS])}"
    )
