"""The pills under the title, which describe a run: how it ended, how sure it is, and what it does not show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from reports import wording
from reports.answers import conditions, left
from reports.data.model import MeasuredCell, Tables
from reports.page import results
from reports.page.page import Pill


def pills(data: Tables) -> tuple[Pill, ...]:
    return (*_ends(data), *_sure(data), *_machine(data), *_limits(data))


def _ends(data: Tables) -> Iterator[Pill]:
    cells = data.grouped
    good = sum(cell.status == "ok" and cell.parity_passed is not False for cell in cells)
    yield Pill(f"{good} of {len(data.cells)} ok", "good" if good == len(data.cells) else "")
    bad = Counter(results.failure(cell) for cell in cells if cell.status != "ok" or cell.parity_passed is not True)
    for (kind, words), count in bad.most_common():
        if kind == "failed":
            yield Pill(f"{count} {words}", "bad", "not-run")
    unfit = Counter(
        results.failure(cell)[1] for cell in data.cells if cell.status == "ok" and cell.parity_passed and cell.unfit
    )
    for words, count in unfit.most_common():
        yield Pill(f"{count} not ranked: {words}", "warn", "measurements")
    for entry in left.left(data.cells, data.runs):
        yield Pill(entry.count, "warn", "not-run")
    if skipped := sum(len(entry.rows) for entry in data.skipped):
        yield Pill(f"{skipped} skipped", "", "not-run")


def _sure(data: Tables) -> Iterator[Pill]:
    ranked = [entry.cell for group in data.groups for entry in group.ranked]
    if not ranked:
        return
    repeats = [len(cell.measured) for cell in ranked]
    if max(repeats) == 1:
        lacking = {cell.run_id for cell in ranked if left.lacks(cell)}
        commands = [entry.command for entry in left.left(data.cells) if entry.run_id in lacking]
        yield Pill(f"measured once: {'; '.join(commands) or 'use --repeats 3'}", "warn", "method")
        return
    yield Pill(f"{_range(repeats)} repeats{_typical(ranked)}", "", "method")


def _machine(data: Tables) -> Iterator[Pill]:
    if words := conditions.in_short(data.cells):
        yield Pill(words, "warn", "measurements")


def _range(counts: Sequence[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _typical(cells: Sequence[MeasuredCell]) -> str:
    widths = [width for cell in cells if cell.step and (width := cell.step.half_width) is not None]
    return f", typically ± {wording.percent(float(np.median(widths)), 2)}" if widths else ""


def _limits(data: Tables) -> Iterator[Pill]:
    cells = data.grouped
    if cells and all(cell.short for cell in cells if cell.status == "ok"):
        presets = wording.listing(sorted({cell.key.preset for cell in cells}))
        yield Pill(f"{presets} run: compare speed, not accuracy", "warn", "method")
    if any(cell.key.data_source == "generated" for cell in cells):
        yield Pill("generated stand-in data", "warn", "method")
