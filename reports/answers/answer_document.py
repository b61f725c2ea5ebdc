"""The answer of some runs for a script: for each group of comparable cells its standing, and every cell with its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from reports.answers import export, standing
from reports.answers.findings import Finding, findings
from reports.data.model import MeasuredCell, Ranked, Tables
from runner.results.on_disk.roles import NamedCell
from runner.results.rank.ranking import Verdict
from runner.results.statistics import ALPHA


class StandingRecord(NamedCell):
    """A cell: seconds a step, and its ratio to the first of its group, which has no verdict. A reason: why it has no ratio."""

    run_id: str
    cell_id: str
    status: str
    parity_passed: bool | None
    repeats: int
    step_seconds: float | None
    step_low: float | None
    step_high: float | None
    items_per_second: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    verdict: Verdict | None
    note: str
    reason: str


class GroupRecord(TypedDict):
    """Cells that may be compared, the fastest first, then those that may not be ranked."""

    workload: str
    device_model: str
    precision: str
    preset: str
    headline: str
    detail: str
    cells: list[StandingRecord]


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
    """Every cell of every group as a flat record, for CSV; then those that are not yet run."""
    return [
        *(cell for finding in findings(tables) for cell in _group(finding)["cells"]),
        *map(_cell, tables.waiting),
    ]


def _group(finding: Finding) -> GroupRecord:
    group, key = finding.group, finding.group.key
    return {
        "workload": key.workload,
        "device_model": key.device_model,
        "precision": key.precision,
        "preset": key.preset,
        "headline": finding.headline,
        "detail": finding.detail,
        "cells": [*(_cell(entry.cell, entry) for entry in group.ranked), *(_cell(cell) for cell in group.others)],
    }


def _cell(cell: MeasuredCell, entry: Ranked | None = None) -> StandingRecord:
    step, rate, ratio = cell.step, cell.items_per_second, entry.ratio if entry else None
    return {
        **export.of_cell(cell),
        "run_id": cell.run_id,
        "cell_id": cell.cell_id,
        "status": cell.status,
        "parity_passed": cell.parity_passed,
        "repeats": len(cell.measured),
        "step_seconds": step.value if step else None,
        "step_low": step.low if step else None,
        "step_high": step.high if step else None,
        "items_per_second": rate.value if rate else None,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "verdict": entry.verdict if entry else None,
        "note": standing.note(entry) if entry else "",
        "reason": cell.unranked,
    }
