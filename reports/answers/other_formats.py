"""Stored runs in the formats of three trackers of performance: Bencher (https://bencher.dev), the GitHub action
benchmark-action/github-action-benchmark, and Apache Otava, formerly Hunter.

They find changes by themselves over many uploads or runs. They get only figures that may stand beside those of other runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from reports.answers import export
from reports.answers.answers_table import StandingRecord, rows_of
from reports.answers.run_history import History
from reports.data.model import MeasuredCell, Tables
from reports.wording import number
from runner.text import visible

# The longest name of a benchmark that Bencher takes.
_LONGEST = 1024
_NOT_IN_A_SLUG = re.compile(r"[^a-z0-9.]+")
CONFIG = "otava.yaml"


def _name(cell: MeasuredCell) -> str:
    """A cell in a line, the same in each run; a GPU that is compared with others of its model by the end of its UUID."""
    of = export.of_cell(cell)
    mode = "" if of["mode"] == "default" else f" {of['mode']}"
    many = f"{of['devices']} × " if of["devices"] != 1 else ""
    scaling = f" {of['scaling']}" if of["scaling"] else ""
    uuid = f" …{cell.uuid[-4:]}" if cell.uuid else ""
    words = f"{of['workload']} {of['framework']}{mode} {of['precision']} {of['preset']} batch {of['batch']}{scaling}"
    return visible(f"{words} on {many}{of['device_model']}{uuid} [{of['image']}]", _LONGEST)


def bencher(tables: Tables) -> dict[str, dict[str, dict[str, float]]]:
    """Bencher Metric Format: of each cell the nanoseconds of a step with their 95 % interval. Of several runs the newest counts."""
    metrics: dict[str, dict[str, dict[str, float]]] = {}
    for name, row in _newest(tables):
        ends = {"value": row["step_seconds"], "lower_value": row["step_low"], "upper_value": row["step_high"]}
        # Its built-in measure of this name has the unit ns.
        metrics[name] = {"latency": {key: 1e9 * value for key, value in ends.items() if value is not None}}
    return metrics


def github_action_benchmark(tables: Tables) -> list[dict[str, str | float]]:
    """The input of the action's tool `customSmallerIsBetter`: milliseconds of a step. Of several runs the newest counts."""
    found = dict(_newest(tables))
    return [
        {"name": name, "unit": "ms/step", "value": 1e3 * (row["step_seconds"] or 0.0), "range": _range(row)}
        for name, row in found.items()
    ]


def _range(row: StandingRecord) -> str:
    """The action prints it beside the value."""
    ends = (row["step_low"], row["step_high"])
    return "–".join(number(1e3 * end) for end in ends if end is not None)


def _newest(tables: Tables) -> Iterator[tuple[str, StandingRecord]]:
    """The name and the row of each cell whose figure may stand beside those of other runs, the newest run's last."""
    cells = {(cell.run_id, cell.cell_id): cell for cell in tables.cells}
    for row in sorted(rows_of(tables), key=lambda row: tables.order[row["run_id"]]):
        cell = cells[row["run_id"], row["cell_id"]]
        if cell.comparable and row["step_seconds"] is not None:
            yield _name(cell), row


def otava(history: History, tables: Tables, folder: Path) -> dict[Path, str]:
    """The files for Otava in a folder: a CSV for each cell that several runs measured, a row a run, and the list of these tests."""
    created: Mapping[str, str] = {run.run_id: str(run.manifest["created"]) for run in tables.runs}
    files: dict[Path, str] = {}
    tests: dict[str, object] = {}
    for cells in history.again:
        name = _name(cells[0])
        words = (cells[0].key.workload, cells[0].framework, cells[0].key.precision)
        slug = "-".join(_NOT_IN_A_SLUG.sub("-", word.lower()) for word in words)
        test = f"{slug[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        path = folder / f"{test}.csv"
        rows = [
            {"time": created[cell.run_id], "run": cell.run_id, "step_seconds": cell.step.value}
            for cell in cells
            if cell.step is not None
        ]
        files[path] = export.comma_separated(rows)
        tests[test] = {
            "type": "csv",
            "file": str(path),
            "time_column": "time",
            "attributes": ["run"],
            # Less is better. Otava takes each metric's name once in all tests.
            "metrics": {f"{test}.step_seconds": {"column": "step_seconds", "direction": -1}},
        }
    # JSON is YAML.
    files[folder / CONFIG] = json.dumps({"tests": tests}, indent=1, ensure_ascii=False) + "\n"
    return files
