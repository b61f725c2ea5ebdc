"""The report in Markdown, for a README or a pull request: the answers, and one table for each group of comparable cells."""

from __future__ import annotations

from collections.abc import Sequence

from reports.answers import across, export, findings
from reports.answers.export import Column, escaped
from reports.answers.findings import Finding
from reports.data.model import Group, Tables
from reports.text import between, duration, number, percent
from runner.results.statistics import Estimate


def markdown(tables: Tables, answers: Sequence[Finding] | None = None) -> str:
    """The whole summary. The sentences under a table name the cells that were not ranked, with the reason."""
    answers = findings.findings(tables) if answers is None else answers
    parts = [f"## {escaped(findings.title(tables))}", escaped(findings.lead(tables), 1000)]
    parts += [part for finding in answers for part in _answer(finding)]
    parts += ["\n".join(f"- {escaped(words, 1000)}" for words in findings.changes(tables, across.ladders(tables)))]
    runs = ", ".join(escaped(run.run_id) for run in tables.runs)
    parts += [f"Medians over measured windows with 95 % intervals, from stored runs: {runs}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _answer(finding: Finding) -> list[str]:
    key = finding.group.key
    place = (finding.workload.title, key.device, key.precision, key.preset)
    ranked = export.markdown(_table(finding.group, finding.workload.items)) if finding.group.ranked else ""
    caveats = "\n".join(f"- {escaped(words, 1000)}" for words in finding.caveats)
    answer = f"**{escaped(finding.headline)}.** {escaped(finding.detail, 1000)}"
    return [f"### {', '.join(map(escaped, place))}", answer, ranked, caveats]


def _table(group: Group, items: str) -> export.Table:
    columns = (
        Column("cell", lambda row: row.cell.label),
        Column("step time", lambda row: export.step(row.cell.step)),
        Column("to the fastest", lambda row: _ratio(row.ratio)),
        Column(
            f"{items}/s", lambda row: number(row.cell.items_per_second.value if row.cell.items_per_second else None)
        ),
        Column("first step", lambda row: duration(row.cell.first_step_seconds)),
        Column("half width", lambda row: percent(row.cell.step.half_width if row.cell.step else None, 2)),
    )
    return export.table(columns, group.ranked)


def _ratio(ratio: Estimate) -> str:
    return "fastest median" if ratio.method == "itself" else f"{number(ratio.value)} × ({between(ratio)})"
