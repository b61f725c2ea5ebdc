"""How long a cell is expected to take: as long as its like took before."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from runner.catalog.workloads import load_workloads
from runner.plan.durations import Durations, earlier_seconds
from runner.plan.plan import Cell
from runner.results.store import SCHEMA_VERSION, RunStore
from tests.fixtures.plans import make_cell

CELL = make_cell(image="torch-1-cu128", device_kind="cuda", device_model="NVIDIA L4")
WORKLOADS = load_workloads()


def ran(results: Path, run: str, *told: tuple[Cell, str, float]) -> None:
    store = RunStore(results / run)
    store.write_manifest({"schema_version": SCHEMA_VERSION})
    for repeat, (cell, status, seconds) in enumerate(told, 1):
        row = asdict(cell) | {"status": status, "wall_seconds": seconds}
        store.write_repeat(cell.id, repeat, {"cells": [row]})


def test_a_cell_takes_as_long_as_it_took_in_the_median_on_that_gpu(tmp_path: Path) -> None:
    other = replace(CELL, device_model="NVIDIA H100")
    ran(tmp_path, "a", (CELL, "ok", 30.0), (CELL, "ok", 50.0), (CELL, "ok", 40.0), (CELL, "failed", 1.0))
    ran(tmp_path, "b", (other, "ok", 10.0))
    durations = Durations(WORKLOADS, earlier_seconds(tmp_path))
    assert durations.seconds(CELL) == 40
    assert durations.seconds(replace(CELL, image="another", seed=9)) == 40, "an image of the same framework"
    assert durations.seconds(other) == 10
    assert durations.seconds(replace(CELL, device_model="NVIDIA A100")) == 35, "on a GPU never seen: of all"


def test_what_never_ran_is_guessed_from_its_preset(tmp_path: Path) -> None:
    durations = Durations(WORKLOADS, earlier_seconds(tmp_path))
    quick, standard = (durations.seconds(replace(CELL, preset=name)) for name in ("quick", "standard"))
    assert 10 < quick < standard
    assert durations.seconds(replace(CELL, preset="full")) > standard


def test_a_file_that_cannot_be_read_takes_no_plan_with_it(tmp_path: Path) -> None:
    ran(tmp_path, "a", (CELL, "ok", 30.0))
    (tmp_path / "a" / "cells" / "0.r1.parquet").write_bytes(b"torn")
    assert Durations(WORKLOADS, earlier_seconds(tmp_path)).seconds(CELL) == 30
