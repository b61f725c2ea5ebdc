"""How a run ended: the exit code, the last lines for a person, and the document for a script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.results import store
from runner.run.begin import Prospect
from runner.run.progress import say

OK, SOME_FAILED = 0, 1

_COLUMNS = [
    "cell_id",
    "repeat",
    "image",
    "framework",
    "mode",
    "workload",
    "precision",
    "device_model",
    "status",
    "error_kind",
    "reason",
    "parity_passed",
    "image_digest",
]


def conclude(prospect: Prospect, run: store.RunStore, interrupted: bool, write_report: Callable[[Path], Path]) -> int:
    """Write the report, tell the user what ended and how to go on, and return the exit code."""
    ended = run.finished()
    missing = len(prospect.jobs_left(run))
    failed = sum(status != "ok" for status in ended.values())
    report = write_report(run.folder) if ended else None
    say(f"{len(ended) - failed} ok, {failed} failed, {missing} not run, {len(prospect.plan.skips)} left out as planned")
    say(f"results  {run.folder}")
    if report:
        say(f"report   {report}")
    if missing:
        how = "interrupted" if interrupted else "not all was run"
        out = "" if prospect.options.out == Path("results") else f" --out {prospect.options.out}"
        say(f"{how}; what had ended is kept. Go on with: runner matrix --resume {run.run_id}{out}")
    return SOME_FAILED if failed or missing else OK


def document(run: store.RunStore) -> dict[str, Any]:
    """Every stored repeat with its median step time in seconds (None where nothing was measured)."""
    manifest = run.manifest()
    cells = store.read([run.folder], "cells")
    samples = store.read([run.folder], "samples")
    steady = samples[samples["stage"] == "steady"]
    medians = (steady["seconds"] / steady["steps"]).groupby([steady["cell_id"], steady["repeat"]]).median().to_dict()
    rows = json.loads(cells[_COLUMNS].to_json(orient="records"))
    for row in rows:
        row["median_step_seconds"] = medians.get((row["cell_id"], row["repeat"]))
    return {
        "run_id": run.run_id,
        "folder": str(run.folder),
        "report": str(run.folder / "report.html"),
        "planned": len(manifest["plan"]) * manifest["repeats"],
        "cells": rows,
    }
