"""The sentences that the standing of one group supports: a headline, a detail, and a few words beside each row. Nothing is decided here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from reports.answers.standing import Standing, questions_of
from reports.data.model import Group, MeasuredCell, Ranked
from reports.wording import between_ratios, bound, duration, framework_name, listing, number, plural, too_wide
from runner.results import statistics
from runner.results.rank.ranking import MARGIN, Pair

# Several groups together, where any machine answers: by how much one framework leads the next, and where two change places.

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
    for (group, of), questions in zip(compared, questions_of([of for _, of in compared]), strict=True):
        for framework, entry in of.surely_out(questions).items():
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
    if any(is_coarse(entry) for of in compared for entry in of.open):
        return Lead("Open: the clock is too coarse", "no framework is slower beyond doubt", told=False)
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


# The most cells that a sentence names. Of more, it names the first, and the number of the others.
_MOST_NAMED = 4

_INTERVAL = "95\u00a0% interval "


def some(cells: Iterable[MeasuredCell], last: str = "and") -> str:
    """The names of cells: `A, B and C`, or `A, B or C`."""
    names = [cell.label for cell in cells]
    if len(names) > _MOST_NAMED:
        names = [*names[: _MOST_NAMED - 1], f"{len(names) - _MOST_NAMED + 1} more"]
    return (
        listing(names) if last == "and" else (f"{', '.join(names[:-1])} {last} {names[-1]}" if names[1:] else names[0])
    )


def headline(of: Standing) -> str:
    """The leaders, in few words, and the cells that are outside the order. No order that is open is claimed."""
    return "; ".join((_order(of), *outside(of)))


def outside(of: Standing) -> list[str]:
    """The cells that are outside an order and may be as fast, and those that failed, of which nobody knows."""
    others = [*map(str, of.rivals), *(_faster_once(entry) for entry in of.faster_once)]
    more = [f"{len(others) - 2} more may be as fast"] if len(others) > 2 else []
    return [*others[:2], *more, *([f"{some(of.failed)} failed"] if of.failed else [])]


def _faster_once(entry: Ranked) -> str:
    return f"{entry.cell.label} looks {number(1 / entry.ratio.value)} times as fast (one repeat)"


def _order(of: Standing) -> str:
    """The order of the ranked cells. It says of how many it is where another cell could contradict it."""
    level = [entry.cell for entry in of.level]
    if of.starved:
        its = "its" if len(of.starved) == 1 else "their"
        return f"Open between {some(level)}: {some(of.starved)} got less than half of {its} CPUs"
    if not of.repeated:
        return _seen_once(of)
    if len(level) == 1 and not of.slower:
        return f"{level[0].label} is the only one {'ranked' if of.rivals else 'measured more than once'}"
    among = _among(of)
    if len(level) == 1:
        return f"{level[0].label} is fastest{among}"
    if not of.open:
        return f"{some(level)} are equally fast within {_margin()}"
    # The slower cells are known, also where the first place is open.
    out = f"; {_out(of)}" if of.slower else ""
    return f"{some(level, 'or')} leads{among}{out}" if out else f"Open between {some(level)}{among}: {_at_most(of)}"


def _among(of: Standing) -> str:
    """Of how many cells an order is, where it is not of all that may contradict it; else empty."""
    repeated = len(of.level) + len(of.slower)
    if of.rivals_once:
        return f" of the {repeated} with repeats"
    return _among_once(of)


def _seen_once(of: Standing) -> str:
    if near := [entry.cell for entry in of.rivals_once]:
        return f"{some([of.first.cell, *near], 'or')} looks fastest{_among_once(of)} (one run each)"
    if of.first.cell.shifts:
        return f"{of.first.cell.label} may be fastest: it is unsteady and was measured once"
    return f"{of.first.cell.label} looks fastest{_among_once(of)} (one run)"


def _among_once(of: Standing) -> str:
    if of.rivals or of.failed:
        return f" of the {of.ranked} that are ranked"
    return f" of the {of.ranked} that {'are ranked' if of.behind else 'were measured'}" if of.unrun else ""


def _margin() -> str:
    return f"{100 * MARGIN:g}\u00a0%"


def _out(of: Standing) -> str:
    names = [entry.cell for entry in of.slower]
    return f"{some(names)} {'is' if len(names) == 1 else 'are'} slower"


def is_coarse(entry: Ranked) -> bool:
    """True if every window beside the first took the same time: a clock that tells no more, whatever is repeated."""
    return not entry.is_first and entry.ratio.low is not None and entry.ratio.low == entry.ratio.high


def _at_most(of: Standing) -> str:
    if any(map(is_coarse, of.open)):
        return "the clock is too coarse"
    highs = [entry.ratio.high for entry in (*of.same, *of.open)]
    known = [high for high in highs if high is not None]
    if len(known) < len(highs):
        return "no interval shows how far they are apart"
    return "the repeats scatter too far" if too_wide(1.0, max(known)) else f"at most {number(max(known))} times apart"


def detail(of: Standing) -> str:
    """A sentence on each cell beside the first, the surest first."""
    parts = [_slower(of.slower), _level(of), _of_one_repeat(of), *(f"{rival}." for rival in of.rivals[:3]), _robust(of)]
    parts += [f"Not ranked, and slower as far as measured: {some(of.behind)}."] if of.behind else []
    parts += [f"Not yet run: {some(of.unrun)}."] if of.unrun else []
    return " ".join(filter(None, parts))


def _robust(of: Standing) -> str:
    """Further costs and risks: stalls and failed repeats of the ranked cells."""
    cells = [entry.cell for entry in (*of.level, *of.slower, *of.once)]
    lost = [f"{cell.label}: {cell.lost}" for cell in cells if cell.lost]
    stalls = [f"{cell.label}: {cell.stalls}{_turned_by(cell, of.first.cell)}" for cell in cells if cell.stalls]
    apart = [f"{cell.label}: {cell.left_out}{_turned_by_all(cell, cells)}" for cell in cells if cell.left_out]
    return " ".join(f"{part}." for part in (*lost[:3], *stalls[:3], *apart[:3]))


def _turned_by_all(cell: MeasuredCell, cells: Sequence[MeasuredCell]) -> str:
    """The cells that are slower than one and are faster by all of their time."""
    own, all_of = _with_all_stalls(cell)
    turned = [one for one in cells for step, with_all in [_with_all_stalls(one)] if step > own and with_all < all_of]
    return f", longer than {some(turned)}" if turned else ""


def _with_all_stalls(cell: MeasuredCell) -> tuple[float, float]:
    """Seconds a step, and the same with the stalls of few repeats."""
    step = cell.step.value if cell.step else math.inf
    return step, step * (1 + cell.left_out.longer if cell.left_out else 1)


def _turned_by(cell: MeasuredCell, first: MeasuredCell) -> str:
    """The order of a cell that stalls by its typical step, if that is the opposite."""
    own, other = cell.typical_step, first.typical_step
    if cell.step is None or first.step is None or own is None or other is None or cell is first:
        return ""
    if (cell.step.value < first.step.value) == (own < other):
        return ""
    order = "shorter" if own < other else "longer"
    return f", though its typical step is {order} than that of {first.label} ({duration(own)}, {duration(other)})"


def _slower(entries: Sequence[Ranked]) -> str:
    parts = [
        f"{entry.cell.label} takes {number(entry.told.value)} times as long{f' as {entry.beside.label}' if entry.beside else ''} "
        f"({'' if at else _INTERVAL}{between_ratios(entry.told)})"
        for at, entry in enumerate(entries[:3])
    ]
    parts += [f"{len(entries) - 3} more take longer"] if len(entries) > 3 else []
    return f"{listing(parts)}." if parts else ""


def _level(of: Standing) -> str:
    """The cells that are as fast as the first, and those that may be."""
    first = of.first.cell.label
    parts = [f"{entry.cell.label} is the same as {first} ({between_ratios(entry.ratio)})." for entry in of.same[:3]]
    parts += [_open(entry, first) for entry in of.open[:3]]
    more = len(of.same) + len(of.open) - len(parts)
    parts += [f"{more} more may be as fast."] if more > 0 else []
    return " ".join(parts)


def _open(entry: Ranked, first: str) -> str:
    """How far a cell of which the order is open may be away, and why it is open where the figures alone do not say."""
    why = f": {entry.open_by}" if entry.open_by else ""
    ratio = entry.ratio
    reach = ""
    if is_coarse(entry):
        reach = ": the clock is too coarse"
    elif ratio.low is not None and ratio.high is not None and not why:
        between = between_ratios(ratio)
        # Of an interval that is too wide these are words.
        reach = f" ({between})" if too_wide(ratio.low, ratio.high) else f": it takes {between} times as long"
    return f"Whether {entry.cell.label} is slower than {first} is open{why or reach}."


def _of_one_repeat(of: Standing) -> str:
    """A sentence on the cells that were measured once."""
    parts: list[str] = []
    faster = [entry.cell for entry in of.rivals_once if entry.looks_faster]
    near = [entry.cell for entry in of.rivals_once if not entry.looks_faster]
    parts += [f"{some(faster)} look{'s' * (len(faster) == 1)} faster"] if faster else []
    parts += [f"{some(near)} may be as fast"] if near else []
    parts += [_longer_once(entry) for entry in of.out_once[:3]]
    if more := len(of.out_once[3:]):
        parts.append(f"{plural(more, 'more cell')} also take{'s' * (more == 1)} longer")
    return f"Measured once: {'; '.join(parts)}." if parts else ""


def _longer_once(entry: Ranked) -> str:
    if entry.assumed:
        return f"{entry.cell.label} looks {number(entry.ratio.value)} times as long"
    return f"{entry.cell.label} takes more than {bound(entry.at_least)} times as long"


def in_short(of: Standing, questions: int) -> str:
    """The frameworks of a group in few words: those that lead, and the nearest that is slower. `questions`: the groups of one sentence."""
    may = of.frameworks if not of.repeated else dict.fromkeys(entry.cell.framework for entry in of.level)
    lead = [framework_name(name) for name in may]
    lead = lead if len(lead) <= _MOST_NAMED else [*lead[: _MOST_NAMED - 1], f"{len(lead) - _MOST_NAMED + 1} more"]
    if not of.repeated:
        return f"{alternatives(lead)} (one run each)"
    said = alternatives(lead) if of.open else listing(lead)
    return ", then ".join(filter(None, [said, nearest_in_short(of, questions)]))


def nearest_in_short(of: Standing, questions: int) -> str:
    """The nearest framework that is slower, and by how much; empty where there is none."""
    nearest = next(iter(of.surely_out(questions).items()), None)
    if nearest is None:
        return ""
    framework, entry = nearest
    return f"{framework_name(framework)} {number(entry.told.value)} × ({between_ratios(entry.told)})"


def alternatives(names: Sequence[str]) -> str:
    """`A`, `A or B`, or `A, B or C`."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)


def note(entry: Ranked) -> str:
    """The same of one row, in a word or two: `same`, `open`, `slower`, or what one repeat shows."""
    if entry.is_first:
        return ""
    if entry.once:
        if entry.at_least and entry.assumed:
            return "one run: looks slower"
        near = "looks faster" if entry.looks_faster else "may be as fast"
        return f"one run: more than {bound(entry.at_least)}" if entry.at_least else f"one run: {near}"
    return f"slower than {entry.beside.label}" if entry.beside and entry.apart else entry.verdict or ""


def notes(entry: Ranked) -> str:
    """All that stands beside the figure of one row: its place, its failed repeats and its stalls."""
    cell = entry.cell
    return "; ".join(filter(None, (note(entry), cell.lost, str(cell.stalls or ""), str(cell.left_out or ""))))
