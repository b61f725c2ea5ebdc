"""How long a cell is expected to take: as long as its like took before."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from runner.catalog.workloads import load_workloads
from runner.plan.duration import Expectation, seen
from runner.plan.plan import Cell
from runner.results.store import SCHEMA_VERSION, RunStore

CELL = Cell("torch-1-cu128", "torch", "gru-imdb", "fp32", "quick", "default", "cuda", "NVIDIA L4", 1, 64, 1, "0" * 64)
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
    expectation = Expectation(WORKLOADS, seen(tmp_path))
    assert expectation.seconds(CELL) == 40
    assert expectation.seconds(replace(CELL, image="another", seed=9)) == 40, "an image of the same framework"
    assert expectation.seconds(other) == 10
    assert expectation.seconds(replace(CELL, device_model="NVIDIA A100")) == 35, "on a GPU never seen: of all"


def test_what_never_ran_is_guessed_from_its_preset(tmp_path: Path) -> None:
    expectation = Expectation(WORKLOADS, seen(tmp_path))
    quick, standard = (expectation.seconds(replace(CELL, preset=name)) for name in ("quick", "standard"))
    assert 10 < quick < standard
    assert expectation.seconds(replace(CELL, preset="full")) > standard


def test_a_file_that_cannot_be_read_takes_no_plan_with_it(tmp_path: Path) -> None:
    ran(tmp_path, "a", (CELL, "ok", 30.0))
    (tmp_path / "a" / "cells" / "0.r1.parquet").write_bytes(b"torn")
    assert Expectation(WORKLOADS, seen(tmp_path)).seconds(CELL) == 30
