"""The pages of `runner compare` and `runner history`: the sentence, the picture that a person would draw, the table."""

from __future__ import annotations

from collections.abc import Sequence

from reports.answers import comparison as compared
from reports.answers import run_history
from reports.answers.comparison import Comparison
from reports.answers.contrast import Contrast
from reports.answers.export import Table
from reports.answers.overview import moment
from reports.answers.run_history import History
from reports.data.model import Tables
from reports.page import plots, render
from reports.page.drawing import Axis, Chart, Picture
from reports.wording import between_ratios, number

# Pixels of a row of a picture of ratios.
_ROW = 34


def compare_page(comparison: Comparison) -> str:
    """The whole HTML document of two sides."""
    title = f"{comparison.b} beside {comparison.a}"
    table = compared.table(comparison) if comparison.rows else None
    method = [compared.method(comparison)] if comparison.rows else []
    charts = [_ratios(comparison)] if comparison.rows else []
    remarks = [line for line in compared.remarks(comparison) if comparison.summary not in line]
    return _page(comparison.summary, f"{comparison.kind}: {title}", charts, table, [*remarks, *method])


def history_page(history: History, tables: Tables, *, everything: bool = False) -> str:
    """The whole HTML document of the runs of some months. `everything`: also the cells that did not change."""
    rows = history.rows if everything else history.moved
    days = [
        moment(str(run.manifest["created"])) for run in sorted(tables.runs, key=lambda run: tables.order[run.run_id])
    ]
    span = f"{len(days)} runs, {days[0]} to {days[-1]}" if len(days) > 1 else f"one run, {days[0]}"
    charts = plots.changes_over_time(tables, history.again, history.moved)
    shown = rows or history.rows
    notes = [*(one.line for one in history.broken), *([run_history.HOW] if shown else [])]
    headline = history.together or history.summary
    notes = [history.summary, *notes] if history.together else notes
    return _page(headline, span, charts, run_history.table(shown) if shown else None, notes)


def _page(headline: str, kicker: str, charts: Sequence[Chart], table: Table | None, notes: Sequence[str]) -> str:
    style = render.styles()
    return render.filled(
        "changes.html.j2", ("theme",), style, headline=headline, kicker=kicker, charts=charts, table=table, notes=notes
    )


def _ratios(comparison: Comparison) -> Chart:
    """Each cell's ratio with its interval beside the margin, on one scale: to the right of 1 the second side takes longer."""
    shift = [("all cells together", comparison.shift.row)] if comparison.shift else []
    named = [*shift, *((f"{row.cell.name}, {row.cell.key.workload}", row) for row in comparison.rows)]
    rows = [row for _, row in named]
    margin = 1 + comparison.margin
    ends = [end for row in rows if row.ratio for end in (row.ratio.low, row.ratio.value, row.ratio.high) if end]
    low, high = min([1 / margin, *ends]), max([margin, *ends])
    picture = Picture(_ROW * len(rows), Axis(low / 1.05, high * 1.05, log=True))
    picture.bar(picture.x(1 / margin), picture.x(margin), 0, picture.height, "area wash")
    ticks = sorted({low, 1 / margin, 1.0, margin, high})
    picture.grid(f"× the time of {comparison.a}", "", [(tick, number(tick)) for tick in _apart(picture.x, ticks)])
    for at, (name, row) in enumerate(named):
        _ratio(picture, name, row, _ROW * at)
    caption = (
        f"Step time of {comparison.b} as a multiple of {comparison.a}, with its interval. The band is the margin of "
        f"{100 * comparison.margin:g} %: changes inside it do not matter."
    )
    return picture.chart("ratios", caption, caption)


def _apart(axis: Axis, ticks: Sequence[float]) -> list[float]:
    """The ticks whose labels do not cover each other; 1 is always one."""
    kept = [1.0]
    for tick in ticks:
        if all(abs(axis(tick) - axis(other)) > 9 for other in kept):
            kept.append(tick)
    return sorted(kept)


def _ratio(picture: Picture, name: str, row: Contrast, top: float) -> None:
    """A row: its name with the verdict, and below them the ratio with its interval."""
    middle, ratio = top + 22, row.ratio
    tone = ("alarm" if row.slower else "good") if row.real else "muted"
    picture.words(0, top + 12, f"{name}: {row.verdict}", "alarm" if row.real and row.slower else "tick")
    if ratio is None:
        return
    if ratio.low is not None and ratio.high is not None:
        picture.interval(picture.x(ratio.low), picture.x(ratio.high), middle, f"line {tone}")
    picture.mark(
        picture.x(ratio.value), middle, "circle", tone, f"{number(ratio.value, 4)} × ({between_ratios(ratio)})"
    )
