"""The answer as data: a row for each cell of some runs, with the figures that the page prints. CSV, JSON, the formats of trackers and the
table `answers` of a run are these rows (reports.answers.answers_table)."""

from __future__ import annotations

from typing import Literal

from reports.answers import export, standing_words
from reports.answers.standing import contradicting
from reports.data.costs import BETWEEN, BETWEEN_99, FIRST_TOKEN, FLOOR, FLOOR_MEASURED
from reports.data.model import Group, MeasuredCell, Ranked, Tables
from runner.results.cells import MISSING
from runner.results.on_disk.roles import NamedCell
from runner.results.rank.ranking import Verdict

Place = Literal["first", "same", "open", "slower", "faster", "once", "not ranked", "not run"]

_RATES = "single operations have rates and no step time: the table operations has them"


class StandingRecord(NamedCell):
    """A cell: seconds a step, and its ratio to the first of its group, which has no verdict. A reason: why it has no ratio.

    A step takes all time over all steps. The typical step is that of the median window: it does not see stalls.

    At tf32 and at mixed precision `parity_at_fp32` names the cell that its rank rests on; empty of others, and where there is none.
    Of a network that computes token by token also its times, and a step's floor by the memory; of others these are null.
    Cells that may be compared have one `group_id`. docs/columns.md says what each key holds.
    """

    run_id: str
    cell_id: str
    device_kind: str
    device_uuid: str
    engine: str
    data_source: str
    status: str
    parity_passed: bool | None
    parity_at_fp32: str
    device_proof: str
    version_proof: str
    repeats: int
    repeats_failed: int
    repeats_planned: int
    windows: int
    step_seconds: float | None
    step_low: float | None
    step_high: float | None
    typical_step_seconds: float | None
    items_per_second: float | None
    items_per_second_low: float | None
    items_per_second_high: float | None
    first_token_seconds: float | None
    between_tokens_seconds: float | None
    between_tokens_99_seconds: float | None
    floor_seconds: float | None
    floor_measured_seconds: float | None
    group_id: str
    ranked: bool
    standing: Place
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    verdict: Verdict | None
    note: str
    reason: str


def rows_of(tables: Tables) -> list[StandingRecord]:
    """Every cell of every group, then those that are not yet run."""
    rows = [row for workload in tables.workloads for group in workload.groups for row in rows_of_group(group)]
    operators = {workload.name for workload in tables.workloads if workload.task == "operators"}
    for row in rows:
        if row["workload"] in operators and row["status"] == "ok":
            row["reason"] = _RATES
    return [*rows, *map(row_of, tables.waiting)]


def rows_of_group(group: Group) -> list[StandingRecord]:
    """The cells of a group: the ranked ones, the fastest first, then the others."""
    rivals = contradicting(group)[0] if group.ranked else ()
    looks = {rival.cell.anchor: rival.looks for rival in rivals}
    others = [row_of(cell, looks=looks.get(cell.anchor, ""), group=group) for cell in group.others]
    return [*(row_of(entry.cell, entry, group=group) for entry in group.ranked), *others]


def row_of(
    cell: MeasuredCell, entry: Ranked | None = None, looks: str = "", group: Group | None = None
) -> StandingRecord:
    """A cell's row. `entry`: its place, where it is ranked; `looks`: how it looks beside the first, where it is not."""
    step, rate, ratio = cell.step, cell.items_per_second, entry.ratio if entry else None
    return {
        **export.of_cell(cell),
        "run_id": cell.run_id,
        "cell_id": cell.cell_id,
        "device_kind": cell.key.device_kind,
        "device_uuid": cell.uuid,
        "engine": cell.engine,
        "data_source": cell.key.data_source,
        "status": cell.status,
        "parity_passed": cell.parity_passed,
        "parity_at_fp32": cell.at_fp32,
        "device_proof": cell.device_proof,
        "version_proof": str(cell.row.get("version_proof") or ""),
        "repeats": len(cell.measured),
        "repeats_failed": sum(repeat.status != "ok" for repeat in cell.repeats),
        "repeats_planned": cell.planned,
        "windows": sum(len(repeat.steady) for repeat in cell.measured),
        "step_seconds": step.value if step else None,
        "step_low": step.low if step else None,
        "step_high": step.high if step else None,
        "typical_step_seconds": cell.typical_step,
        "items_per_second": rate.value if rate else None,
        "items_per_second_low": rate.low if rate else None,
        "items_per_second_high": rate.high if rate else None,
        "first_token_seconds": cell.costs.get(FIRST_TOKEN),
        "between_tokens_seconds": cell.costs.get(BETWEEN),
        "between_tokens_99_seconds": cell.costs.get(BETWEEN_99),
        "floor_seconds": cell.costs.get(FLOOR),
        "floor_measured_seconds": cell.costs.get(FLOOR_MEASURED),
        "group_id": group.anchor if group else "",
        "ranked": entry is not None,
        "standing": _place(cell, entry),
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "verdict": entry.verdict if entry else None,
        "note": standing_words.notes(entry) if entry else looks,
        "reason": cell.unranked,
    }


def _place(cell: MeasuredCell, entry: Ranked | None) -> Place:
    if entry is None:
        return "not run" if cell.status == MISSING else "not ranked"
    if entry.verdict is None:
        return "first"
    return "once" if entry.once else entry.verdict
