"""The overview: a row for each labelled image, a column for each group of comparable cells."""

from __future__ import annotations

from reports import text
from reports.data.model import Group, MeasuredCell, Tables
from reports.page.page import Overview, OverviewEntry, OverviewRow
from runner.results.cells import Row
from runner.results.statistics import Estimate


def overview(data: Tables) -> Overview:
    groups = tuple((workload.anchor, group) for workload in data.ranked for group in workload.groups)
    rows = _rows(data)
    return Overview(data.ranked, groups, rows, _absent(data, rows))


def _rows(data: Tables) -> tuple[OverviewRow, ...]:
    frameworks = {cell.label: cell.framework for cell in data.cells}
    for skipped in data.skipped:
        for row in skipped.rows:
            if any(_fits(row, group) for group in data.groups):
                frameworks.setdefault(_name_of(row), str(row["framework"]))
    columns = [_column(group, data) for group in data.groups]
    nothing = OverviewEntry()
    return tuple(
        OverviewRow(label, framework, tuple(column.get(label, nothing) for column in columns))
        for label, framework in sorted(frameworks.items(), key=lambda row: (row[1], row[0]))
    )


def _column(group: Group, data: Tables) -> dict[str, OverviewEntry]:
    """What stands in a group's column, by row."""
    left_out = {
        _name_of(row): OverviewEntry(left_out=skipped.reason, title=skipped.reason)
        for skipped in reversed(data.skipped)
        for row in skipped.rows
        if _fits(row, group)
    }
    unranked = {cell.label: OverviewEntry(cell, title=f"{cell.label}: {cell.unranked}") for cell in group.others}
    return {**left_out, **unranked, **{entry.cell.label: _ranked(entry.cell, entry.ratio) for entry in group.ranked}}


def _ranked(cell: MeasuredCell, ratio: Estimate) -> OverviewEntry:
    """To a pointer it says the step time and both intervals."""
    title = f"{cell.label}: {text.duration(cell.step.value if cell.step else None)} a step, {text.between(cell.step, 1e3)} ms"
    if ratio.method != "itself":
        title += f"; {text.number(ratio.value)} × the fastest, {text.between(ratio)}"
    return OverviewEntry(cell, ratio, title=title, shade=round(max(0.0, 0.22 - 0.22 * (ratio.value - 1.0)), 3))


def _name_of(row: Row) -> str:
    return text.cell_name(str(row["image"]), str(row["framework"]), row["mode"])


def _fits(row: Row, group: Group) -> bool:
    """Whether a combination that was left out would have stood in this group; the plan does not say its preset."""
    names = ("workload", "precision", "device_kind", "device_model")
    return all(row[name] == getattr(group.key, name) for name in names)


def _absent(data: Tables, rows: tuple[OverviewRow, ...]) -> tuple[str, ...]:
    """The images that the plan left out altogether."""
    shown = {row.label for row in rows} | {cell.image for cell in data.cells}
    images = {str(row["image"]): _name_of(row) for skipped in data.skipped for row in skipped.rows}
    return tuple(sorted(image for image, name in images.items() if not shown & {image, name}))
