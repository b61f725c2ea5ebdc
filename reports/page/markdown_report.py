"""The report in Markdown, for a README or a pull request: the answers, and one table for each group of comparable cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reports.answers import export, left, standing_words
from reports.answers.findings import Finding, without_answer
from reports.answers.overview import Overview
from reports.answers.to_loss import CLOCK, COLUMNS, LossAnswer
from reports.data.costs import Cost
from reports.data.model import Group, MeasuredCell, Ranked, Tables
from reports.wording import between_ratios, duration, number, percent, plural
from runner.results.parity import PROOF
from runner.results.statistics import Estimate


def markdown(overview: Overview) -> str:
    """The whole summary. The sentences under a table name the cells that were not ranked, with the reason."""
    tables, proved = overview.tables, _proved(overview.tables)
    bare = without_answer(overview.findings)
    answers = [part for finding in overview.findings if finding not in bare for part in answer(finding)]
    answers += _bare(bare) if bare else []
    if waiting := left.named(tables.waiting):
        answers += ["### Not yet run", "\n".join(f"- {export.escaped(line, len(line))}" for line in waiting)]
    parts = [f"## {export.escaped(overview.title)}", export.escaped(overview.lead, 1000), *answers]
    parts += ["\n".join(f"- {export.escaped(words, 1000)}" for words in overview.changes)]
    runs = ", ".join(export.escaped(run.run_id) for run in tables.runs)
    ranked = any(group.ranked for group in tables.groups)
    said = (
        "Geometric means of the repeats' medians with 95 % intervals, from stored runs"
        if ranked
        else "From stored runs"
    )
    parts += [f"{said}: {runs}.", proved]
    return export.in_a_comment("\n\n".join(part for part in parts if part) + "\n")


def _bare(bare: Sequence[Finding]) -> list[str]:
    """The groups of which no cell may be ranked, in one list."""
    lines = [
        f"- {export.escaped(', '.join((one.workload.title, one.group.key.device, one.group.key.precision, one.group.key.preset)))}: "
        f"{export.escaped(' '.join(one.caveats), 1000)}"
        for one in bare
    ]
    return ["### No answer", "\n".join(lines)]


def _proved(tables: Tables) -> str:
    """How many of the ranked cells were checked as they were measured: those of an older bench were checked before only."""
    cells = [entry.cell for group in tables.groups for entry in group.ranked]
    measured = sum(any(row.phase == PROOF for row in cell.parity) for cell in cells)
    if not cells:
        return ""
    before = f"{plural(len(cells), 'ranked cell')} computed what the float64 reference computes before the measurement"
    return f"{before}; of {measured} the measured network itself was checked too."


def answer(finding: Finding) -> list[str]:
    """The parts of one group's answer: its title, its sentences, its table, and what stands beside the figures."""
    key = finding.group.key
    place = filter(None, (finding.workload.title, key.device, key.precision, key.preset, finding.beside))
    # A list of Markdown's own would number them anew where the table, which has ranked cells only, lacks one.
    marked = {number_ for entry in finding.group.ranked for number_ in _numbers(finding.group, entry.cell)}
    table = _table(finding.group, finding.workload.items)
    ranked = export.markdown(table) if table.rows else ""
    beside = "\n".join(
        f"- {export.escaped(f'[{at}] {words}', 1000)}"
        for at, words in enumerate(finding.group.caveats, start=1)
        if at in marked
    )
    caveats = "\n".join(f"- {export.escaped(words, 1000)}" for words in finding.caveats)
    said = f"**{export.escaped(finding.headline)}.** {export.escaped(finding.detail, 1000)}"
    losses = [part for of in finding.losses for part in _to_loss(of)]
    return [f"### {', '.join(map(export.escaped, place))}", said, ranked, beside, caveats, *losses]


def _to_loss(answer: LossAnswer) -> list[str]:
    """The parts on the time to a stated loss."""
    said = f"**{export.escaped(f'{answer.title}: {answer.headline}')}.** {export.escaped(answer.detail, 1000)} {CLOCK}"
    return [said, export.markdown(export.table(COLUMNS, answer.rows))]


def _table(group: Group, items: str) -> export.Table:
    columns = (
        export.Column("cell", lambda row: _numbered(group, row.cell)),
        export.Column("step time", lambda row: export.step(row.cell.step)),
        export.Column("to the fastest", lambda row: _ratio(row.ratio)),
        export.Column("standing", standing_words.notes),
        export.Column(
            f"{items}/s", lambda row: number(row.cell.items_per_second.value if row.cell.items_per_second else None)
        ),
        *(export.Column(f"{cost.head}, {cost.unit}".lower(), _written(cost)) for cost in group.token_costs),
        export.Column("first step", lambda row: _first_step(row.cell)),
        export.Column("half width", lambda row: percent(row.cell.step.half_width if row.cell.step else None, 2)),
    )
    return export.table(columns, group.ranked)


def _written(cost: Cost) -> Callable[[Ranked], str]:
    return lambda row: cost.written(row.cell.costs.get(cost.name))


def _first_step(cell: MeasuredCell) -> str:
    """Its seconds, and in how many repeats they hold the driver's compilation."""
    compiled = f" (driver compiled in {cell.compiled_repeats} of {len(cell.repeats)})" if cell.compiled_repeats else ""
    return duration(cell.first_step_seconds) + compiled


def _numbers(group: Group, cell: MeasuredCell) -> list[int]:
    return [int(word) for word in group.caveat_numbers[cell.anchor].split(",") if word.strip()]


def _numbered(group: Group, cell: MeasuredCell) -> str:
    """The cell, with the numbers of its caveats in the list under the table."""
    numbers = group.caveat_numbers[cell.anchor]
    return f"{cell.label} [{numbers}]" if numbers else cell.label


def _ratio(ratio: Estimate) -> str:
    return "fastest" if ratio.method == "itself" else f"{number(ratio.value)} × ({between_ratios(ratio)})"
