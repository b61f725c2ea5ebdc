"""Stored runs in the formats of two trackers of performance: Bencher (https://bencher.dev) and Apache Otava, formerly Hunter.

Both find changes by themselves over many uploads or runs. They get only figures that may stand beside those of other runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from reports.answers import export
from reports.answers.run_history import History
from reports.data.model import MeasuredCell, Tables
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
    for cell in sorted(tables.cells, key=lambda cell: tables.order[cell.run_id]):
        if not cell.comparable or cell.step is None:
            continue
        ends = {"value": cell.step.value, "lower_value": cell.step.low, "upper_value": cell.step.high}
        # Its built-in measure of this name has the unit ns.
        metrics[_name(cell)] = {"latency": {key: 1e9 * value for key, value in ends.items() if value is not None}}
    return metrics


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
