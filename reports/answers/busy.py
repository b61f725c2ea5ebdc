"""Signs that a machine was busy with other work: the cells that are too noisy, and those that got few CPUs.

A low share of the CPUs alone shows nothing: a small network leaves most of them idle. Less than one CPU does, and so does
another framework that got more at the same work (reports/data/cpus.py). No run records what others took.
"""

from __future__ import annotations

from collections.abc import Iterable

from reports.data.cpus import FEW, cpus_busy, given
from reports.data.model import MeasuredCell
from reports.wording import number, plural

MOST_NAMED = 6  # of the cells that a sentence names


def question(cells: Iterable[MeasuredCell]) -> str:
    """A sentence for the top of a report; empty where nothing hints at other work on the machine."""
    cells = list(cells)
    noisy = [cell for cell in cells if cell.status == "ok" and cell.too_noisy]
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
    return f"Busy machine? {'; '.join(parts)}." if parts else ""


def _named(cells: Iterable[MeasuredCell]) -> str:
    """The names of cells with their workloads; of many the first ones, and how many more there are."""
    names = [f"{cell.label}, {cell.key.workload}" for cell in cells]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return "; ".join([*names[:MOST_NAMED], *more])


def in_short(cells: Iterable[MeasuredCell]) -> str:
    """The same in a few words; empty where there is no question."""
    cells = list(cells)
    low = _low([*(cell for cell in cells if cell.status == "ok" and cell.too_noisy), *_starved(cells)])
    return f"busy machine? {_share(low)} CPUs" if low else "busy machine?" if question(cells) else ""


def _starved(cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    return [cell for cell in cells if cell.cpu_share is not None and not cell.too_noisy]


def _low(cells: Iterable[MeasuredCell]) -> list[tuple[float, int]]:
    """(CPUs that it kept busy, CPUs that it was given) of each cell with few of them, the least share first."""
    shares = ((busy, threads) for cell in cells if (busy := cpus_busy(cell)) is not None and (threads := given(cell)))
    return sorted((pair for pair in shares if pair[0] < FEW * pair[1]), key=lambda pair: pair[0] / pair[1])


def _share(low: list[tuple[float, int]]) -> str:
    return f"{number(low[0][0], 2)} of {low[0][1]}"
