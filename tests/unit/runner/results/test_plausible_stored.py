"""A repeat's row of cells and its windows are of the same events: what was changed in one of the two files is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reports.data.tables import ANSWER, load
from runner.admission.record import Recorder
from runner.results.plausible import stored
from runner.results.store import StoreError, arrow_schema
from tests.fixtures import synthetic

RECORDED = sorted((Path(__file__).parents[2] / "recorded").rglob("*.jsonl"))
ENTRY = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")

Row = dict[str, Any]
Change = Callable[[Row], Row]


def recorded(path: Path, folder: Path) -> tuple[Row, list[Row]]:
    """The row of a real cell, and its windows."""
    recorder = Recorder()
    recorder.feed(path.read_bytes())
    recorder.close()
    lived = json.loads(path.read_text().splitlines()[-1])["t"]
    return recorder.row | {"wall_seconds": lived}, recorder.rows["samples"]


def judged(row: Row, samples: list[Row]) -> str | None:
    stage = np.array([sample["stage"] for sample in samples], dtype=object)
    columns = (np.array([sample[name] for sample in samples]) for name in ("begin_seconds", "seconds", "steps"))
    return stored.contradiction(row, stage, *columns)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_rows_of_real_cells_agree_and_those_with_another_time_of_their_steady_windows_do_not(
    path: Path, tmp_path: Path
) -> None:
    row, samples = recorded(path, tmp_path)
    assert judged(row, samples) is None
    for factor in (0.001, 0.3, 0.6, 1.2, 2.0):
        scaled = [
            sample | {"seconds": sample["seconds"] * (factor if sample["stage"] == "steady" else 1.0)}
            for sample in samples
        ]
        assert judged(row, scaled), factor
    # With the pauses between them too.
    first = min(sample["begin_seconds"] for sample in samples if sample["stage"] == "steady")
    for factor in (0.01, 0.5):
        packed = [
            sample
            | {"seconds": sample["seconds"] * factor}
            | {"begin_seconds": first + factor * (sample["begin_seconds"] - first)}
            if sample["stage"] == "steady"
            else sample
            for sample in samples
        ]
        assert "lie within" in str(judged(row | {"short": True}, packed)), factor


def test_a_whole_run_evaluates_between_its_windows() -> None:
    windows = {"stage": "steady", "steps": 3, "seconds": 0.5}
    samples = [windows | {"begin_seconds": 5.0 + at} for at in range(40)]
    row = {"steps": 120, "short": False, "train_seconds": 40.0, "evaluate_seconds": 19.5, "wall_seconds": 60.0}
    assert judged(row, samples) is None
    assert "lay between them" in str(judged(row | {"evaluate_seconds": 2.0}, samples))
    assert "lay between them" in str(judged(row | {"short": True}, samples))


CHANGES: list[tuple[str, Change, str]] = [
    ("cells", lambda row: row | {"steps": None}, "steps is missing in cells, and its windows in samples have 34"),
    (
        "cells",
        lambda row: row | {"first_step_seconds": None},
        "first_step_seconds is missing in cells, and that window",
    ),
    ("samples", lambda row: row | {"seconds": row["seconds"] / 2}, "first_step_seconds is .* in cells"),
    (
        "samples",
        lambda row: row | {"seconds": row["seconds"] * (0.5 if row["stage"] == "steady" else 1)},
        "by begin_seconds and seconds in samples it says that .* lay between them",
    ),
    (
        "samples",
        lambda row: row | {"seconds": row["seconds"] * (2 if row["stage"] == "steady" else 1)},
        "train_seconds is .* in cells, and its steady windows have .* seconds in samples",
    ),
    (
        "samples",
        lambda row: row | {"seconds": row["seconds"] * (1.05 if row["stage"] == "steady" else 1)},
        "a window in samples begins before the one before it ended",
    ),
    ("samples", lambda row: row | {"begin_seconds": row["begin_seconds"] + 900}, "wall_seconds is .* in cells"),
]


@pytest.mark.parametrize(("table", "change", "said"), CHANGES, ids=[said for _, _, said in CHANGES])
@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_repeat_that_ended_well_and_whose_times_or_steps_were_changed_is_refused(
    tmp_path: Path, table: str, change: Change, said: str, status: str
) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=8, changes={"status": status, "error_kind": "crash"})
    path = folder / table / f"{ENTRY['id']}.r1.parquet"
    rows = [change(row) for row in pq.read_table(path).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(table)), path)
    if status == "failed":
        assert load([folder], ANSWER)
        return
    with pytest.raises(StoreError, match=rf"run run: {ENTRY['id']}\.r1: {said}.*; restore its files of cells and sam"):
        load([folder], ANSWER)
