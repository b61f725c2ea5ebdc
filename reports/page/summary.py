"""The report in Markdown, for a README or a pull request: the answers, and one table for each group of comparable cells."""

from __future__ import annotations

from collections.abc import Sequence

from reports.answers import across, export, findings
from reports.answers.export import escaped
from reports.answers.findings import Finding
from reports.data.model import Group, Ranked, Tables
from reports.text import between, duration, number, percent


def markdown(tables: Tables, found: Sequence[Finding] | None = None) -> str:
    """The whole summary. What was not ranked is in the sentences under a table, with the reason; `found` are the answers."""
    found = findings.findings(tables) if found is None else found
    parts = [f"## {escaped(findings.title(tables))}", escaped(findings.lead(tables), 1000)]
    parts += [part for one in found for part in _answer(one)]
    parts += ["\n".join(f"- {escaped(words, 1000)}" for words in findings.changes(tables, across.ladders(tables)))]
    runs = ", ".join(escaped(run.run_id) for run in tables.runs)
    parts += [f"Medians over measured windows with 95 % intervals, from stored runs: {runs}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _answer(found: Finding) -> list[str]:
    key = found.group.key
    heading = (
        f"### {escaped(found.workload.title)}, {escaped(key.device)}, {escaped(key.precision)}, {escaped(key.preset)}"
    )
    said = f"**{escaped(found.headline)}.** {escaped(found.detail, 1000)}"
    caveats = "\n".join(f"- {escaped(words, 1000)}" for words in found.caveats)
    return [
        heading,
        said,
        export.markdown(_table(found.group, found.workload.items)) if found.group.ranked else "",
        caveats,
    ]


def _table(group: Group, items: str) -> export.Table:
    heads = ("cell", "step time", "to the fastest", f"{items}/s", "first step", "half width")
    return export.Table(heads, tuple(_row(entry) for entry in group.ranked))


def _row(entry: Ranked) -> tuple[str, ...]:
    cell, ratio = entry.cell, entry.ratio
    rate, step = cell.items_per_second, cell.step
    return (
        cell.label,
        export.step(step),
        "fastest median" if ratio.method == "itself" else f"{number(ratio.value)} × ({between(ratio)})",
        number(rate.value if rate else None),
        duration(cell.first_step_seconds),
        percent(step.half_width if step else None, 2),
    )
