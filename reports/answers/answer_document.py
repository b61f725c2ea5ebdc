"""The answer of some runs for a script: for each group of comparable cells its standing, and every cell with its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from reports.answers import export
from reports.answers.answer_rows import StandingRecord, row_of, rows_of, rows_of_group
from reports.answers.findings import Finding, findings
from reports.answers.to_loss import LossTimes
from reports.data.model import Tables
from runner.results.on_disk.roles import NamedCell
from runner.results.rank.ranking import Verdict
from runner.results.rank.time_to_loss import End
from runner.results.statistics import ALPHA


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


def document(tables: Tables) -> ReportDocument:
    return {
        "runs": [run.run_id for run in tables.runs],
        "level": 1 - ALPHA,
        "answers": [_group(finding) for finding in findings(tables)],
        "waiting": [export.of_cell(cell) for cell in tables.waiting],
    }


def records(tables: Tables) -> list[Mapping[str, Any]]:
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
