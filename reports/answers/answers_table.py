"""The table `answers` of a run: a row for each of its cells, written beside the tables that are made of parcels, and named in their index.

Other tables, or other code of the report, make it old: the next command that reads the run writes it anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import TypedDict

from reports.answers import export, standing_words
from reports.answers.findings import Finding, findings
from reports.answers.standing import contradicting
from reports.answers.to_loss import LossTimes
from reports.data import tables as stored_runs
from reports.data.costs import BETWEEN, BETWEEN_99, FIRST_TOKEN, FLOOR, FLOOR_MEASURED
from reports.data.model import Group, MeasuredCell, Ranked, Tables
from runner.results.cells import MISSING
from runner.results.on_disk import derived
from runner.results.on_disk.roles import NamedCell
from runner.results.on_disk.schema import ANSWERS, arrow_schema, of_rows
from runner.results.rank.ranking import Verdict
from runner.results.rank.time_to_loss import End
from runner.results.statistics import ALPHA
from runner.results.store import RunStore, StoreError

if TYPE_CHECKING:
    import pyarrow as pa


# The answer as data: a row for each cell of some runs, with the figures that the page prints. CSV, JSON, the formats of trackers and the
# table `answers` of a run are these rows (reports.answers.answers_table).

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


# The answer of some runs for a script: for each group of comparable cells its standing, and every cell with its figures.


class SeedRecord(TypedDict):
    """The seconds of training of one seed until the loss stays below the level: null where it did not get there, and `end` says how."""

    seed: int
    seconds: float | None
    end: End


class LossTimeRecord(NamedCell):
    """The median of the seeds' seconds of training to a loss, and its ratio to the first, which has no verdict. The resolution is the
    training time between two evaluations."""

    run_id: str
    cell_id: str
    seeds_run: int
    reached: int
    seconds: float | None
    seconds_low: float | None
    seconds_high: float | None
    resolution_seconds: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    verdict: Verdict | None
    note: str
    times: list[SeedRecord]


class LossRecord(TypedDict):
    """The training time to a held-out loss that the user stated, in the unit of the metric: of each cell, the fastest first."""

    level: float
    metric: str
    headline: str
    detail: str
    cells: list[LossTimeRecord]


class GroupRecord(TypedDict):
    """Cells that may be compared, the fastest first, then those that may not be ranked."""

    workload: str
    device_model: str
    precision: str
    preset: str
    headline: str
    detail: str
    cells: list[StandingRecord]
    to_loss: list[LossRecord]


class ReportDocument(TypedDict):
    """The groups of some runs, and the cells that are not yet run. The level is that of all intervals."""

    runs: list[str]
    level: float
    answers: list[GroupRecord]
    waiting: list[NamedCell]


def answer_document(tables: Tables) -> ReportDocument:
    return {
        "runs": [run.run_id for run in tables.runs],
        "level": 1 - ALPHA,
        "answers": [_group(finding) for finding in findings(tables)],
        "waiting": [export.of_cell(cell) for cell in tables.waiting],
    }


def answer_records(tables: Tables) -> list[Mapping[str, Any]]:
    """Every cell of every group as a flat record, for CSV; then those that are not yet run. For each stated loss there is one more of
    each cell."""
    cells: list[Mapping[str, Any]] = [*rows_of(tables)]
    if not tables.to_loss:
        return cells
    timed = [(answer.level, row) for finding in findings(tables) for answer in finding.losses for row in answer.rows]
    return [
        *({**cell, **dict.fromkeys(_LOSS_FIELDS)} for cell in cells),
        *({**row_of(row.cell), **_flat(level, row)} for level, row in timed),
    ]


# Those fields of LossTimeRecord, and the level, that are a number or a word: CSV has them as `loss_seeds_run` and so on.
_LOSS_FIELDS = {
    f"loss_{name}": name
    for name in [
        "level",
        "seeds_run",
        "reached",
        "seconds",
        "seconds_low",
        "seconds_high",
        "resolution_seconds",
        "ratio",
        "ratio_low",
        "ratio_high",
        "verdict",
        "note",
    ]
}


def _flat(level: float, row: LossTimes) -> dict[str, Any]:
    own = {**_loss_time(row), "level": level}
    return {field: own[name] for field, name in _LOSS_FIELDS.items()}


def _group(finding: Finding) -> GroupRecord:
    group, key = finding.group, finding.group.key
    return {
        "workload": key.workload,
        "device_model": key.device_model,
        "precision": key.precision,
        "preset": key.preset,
        "headline": finding.headline,
        "detail": finding.detail,
        "cells": rows_of_group(group),
        "to_loss": [
            {
                "level": answer.level,
                "metric": answer.metric,
                "headline": answer.headline,
                "detail": answer.detail,
                "cells": [_loss_time(row) for row in answer.rows],
            }
            for answer in finding.losses
        ],
    }


def _loss_time(row: LossTimes) -> LossTimeRecord:
    ratio = row.entry.ratio if row.entry else None
    return {
        **export.of_cell(row.cell),
        "run_id": row.cell.run_id,
        "cell_id": row.cell.cell_id,
        "seeds_run": len(row.seeds),
        "reached": row.reached,
        "seconds": row.median.value,
        "seconds_low": row.median.low,
        "seconds_high": row.median.high,
        "resolution_seconds": row.resolution,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "verdict": row.entry.verdict if row.entry else None,
        "note": row.note,
        "times": [
            {"seed": time.seed, "seconds": time.seconds if time.reached else None, "end": time.end}
            for time in row.seeds
        ],
    }


_CODE = b"code"
# The tables that the figures of the rows are made of. The times of tokens are metrics, and their floor comes from single operations.
NEEDED = (*stored_runs.ANSWER, "metrics", "operations")


def answers_of(folder: Path) -> pa.Table:
    """The table of a run, whose other tables agree with its parcels. It is written where it is missing or old. Raises StoreError."""
    stored = _current(folder)
    return as_arrow(rows_of(load_and_keep(folder))) if stored is None else stored


def load_and_keep(folder: Path, needed: Collection[str] = NEEDED) -> Tables:
    """Load a run, and write its answers. A folder that cannot be written keeps none, and nothing else suffers."""
    index = derived.signed_index(folder, RunStore(folder).run_id)
    tables = stored_runs.load([folder], needed)
    if index is not None:
        with contextlib.suppress(OSError):
            derived.add(folder, index, ANSWERS, as_arrow(rows_of(tables)))
    return tables


def _current(folder: Path) -> pa.Table | None:
    """The stored table; None where it is missing or old."""
    with contextlib.suppress(StoreError):
        stored = derived.read(folder, RunStore(folder).run_id, (ANSWERS,))[ANSWERS]
        if stored.schema.metadata.get(_CODE) == code_digest():
            return stored
    return None


def as_arrow(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows as Arrow has them."""
    schema = arrow_schema(ANSWERS)
    return of_rows(schema.with_metadata({**schema.metadata, _CODE: code_digest()}), rows)


@functools.cache
def code_digest() -> bytes:
    """The digest of the code that makes the rows of stored cells."""
    halls = Path(__file__).parents[1]
    sources = [path for hall in ("answers", "data") for path in (halls / hall).glob("*.py")]
    whole = hashlib.sha256()
    for path in sorted([*sources, halls / "wording.py", halls / "specifications.py"]):
        whole.update(path.read_bytes())
    return whole.hexdigest().encode()
