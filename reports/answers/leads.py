"""Several groups together, where any machine answers: by how much one framework leads the next, and where two change places."""

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
MOST_WORDS = 8  # of the answer on a card


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
            told.setdefault(framework, []).append((group.key.workload, entry.told.value, between_ratios(entry.told)))
    if not told:
        return _at_most_among([of for _, of in compared]) or _of_single_repeats(compared)
    # The nearest of them says by how much one leads at least; the farthest what a choice may cost.
    rows = sorted((ratio, name) for name, found in told.items() for _, ratio, _ in found)
    nearest, farthest = rows[0], rows[-1]
    words = _who_takes({name: [ratio for _, ratio, _ in found] for name, found in told.items()})
    named = list(dict.fromkeys((nearest[1], farthest[1])))
    parts = [
        f"{framework_name(name)} {listing([f'{ratio} at {workload}' for workload, ratio in _shown(told[name])])}"
        for name in named
    ]
    more = len(told) - len(named)
    return Lead(words, "; ".join([*parts, *([f"{more} more in the table"] if more else [])]), told=True)


def _who_takes(told: Mapping[str, Sequence[float]]) -> str:
    """How many times as long frameworks take, in the words of a card: the farthest first, and as many as it has room for."""

    def times(ratios: Sequence[float]) -> str:
        return " to ".join(dict.fromkeys((number(min(ratios)), number(max(ratios)))))

    if len(told) == 1:
        ((name, ratios),) = told.items()
        says = ": {} times as long" if "to" in times(ratios).split() else " takes {} times as long"
        return framework_name(name) + says.format(times(ratios))
    order = sorted(told, key=lambda name: max(told[name]), reverse=True)
    for many in range(len(order), 0, -1):
        parts = [f"{framework_name(name)}: {times(told[name])}×" for name in order[:many]]
        parts += [f"{len(order) - many} more"] if many < len(order) else []
        if len((said := ", ".join(parts)).split()) <= MOST_WORDS:
            return said
    return said


def _of_single_repeats(compared: Sequence[tuple[Group, Standing]]) -> Lead:
    """How far the others are behind at least, where nothing was repeated."""
    behind: list[tuple[float, str, str]] = []
    for group, of in compared:
        # The first cell of a framework is its fastest.
        found = {entry.cell.framework: entry.ratio.value for entry in reversed(of.out_once)}
        out = [name for name in found if name not in of.frameworks]
        behind += [(found[name], framework_name(name), group.key.workload) for name in out]
    if not behind:
        return Lead("Too close to tell, after one repeat", "no repeat rules a framework out", told=False)
    farthest = sorted(behind, reverse=True)[:2]
    shown = [f"{name} looks {number(ratio)} times as long at {where}" for ratio, name, where in farthest]
    return Lead(f"{farthest[0][1]} looks {number(farthest[0][0])} times as long", listing(shown), told=False)


def _at_most_among(compared: Sequence[Standing]) -> Lead | None:
    """How far the cells are apart at most, where none is slower beyond doubt in all of these groups together; None without repeats."""
    if not any(of.repeated for of in compared):
        return None
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
