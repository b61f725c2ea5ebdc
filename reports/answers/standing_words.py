"""The sentences that the standing of one group supports: a headline, a detail, and a few words beside each row. Nothing is decided here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from reports.answers.standing import Standing
from reports.data.model import MeasuredCell, Ranked
from reports.wording import between_ratios, bound, duration, framework_name, listing, number, plural, too_wide
from runner.results.rank.ranking import MARGIN

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
    """The leaders, in few words, and who is not ranked and may be as fast. No order that is open is claimed."""
    others = [*map(str, of.rivals), *(_faster_once(entry) for entry in of.faster_once)]
    more = [f"{len(others) - 2} more may be as fast"] if len(others) > 2 else []
    return "; ".join((_order(of), *others[:2], *more))


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
        return f"{some(level)} are equally fast within {_margin()}{among}"
    # The slower cells are known, also where the first place is open.
    out = f"; {_out(of)}" if of.slower else ""
    return f"{some(level, 'or')} leads{among}{out}" if out else f"Open between {some(level)}{among}: {_at_most(of)}"


def _among(of: Standing) -> str:
    """Of how many cells an order is, where it is not of all that may contradict it; else empty."""
    repeated = len(of.level) + len(of.slower)
    if of.rivals_once:
        return f" of the {repeated} with repeats"
    if of.rivals:
        return f" of the {of.ranked} that are ranked"
    return f" of the {of.ranked} that {'are ranked' if of.behind else 'were measured'}" if of.unrun else ""


def _seen_once(of: Standing) -> str:
    if near := [entry.cell for entry in of.rivals_once]:
        return f"{some([of.first.cell, *near], 'or')} looks fastest{_among_once(of)} (one run each)"
    if of.first.cell.shifts:
        return f"{of.first.cell.label} may be fastest: it is unsteady and was measured once"
    return f"{of.first.cell.label} looks fastest{_among_once(of)} (one run)"


def _among_once(of: Standing) -> str:
    if of.rivals:
        return f" of the {of.ranked} that are ranked"
    return f" of the {of.ranked} that {'are ranked' if of.behind else 'were measured'}" if of.unrun else ""


def _margin() -> str:
    return f"{100 * MARGIN:g}\u00a0%"


def _out(of: Standing) -> str:
    names = [entry.cell for entry in of.slower]
    return f"{some(names)} {'is' if len(names) == 1 else 'are'} slower"


def _at_most(of: Standing) -> str:
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
    if ratio.low == ratio.high:
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
