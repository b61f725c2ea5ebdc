"""Operations in the report: rates from windows, the right unit, every cell in its column, and nothing ranked by a step time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import reports
from reports import charts, operators, tables
from runner.store import RunStore
from tests.fixtures import synthetic


def windows(
    operation: str, size: str, mop: float, traffic: int, seconds: list[float], **more: Any
) -> list[dict[str, Any]]:
    return [
        {
            "operation": operation,
            "direction": "forward",
            "size": size,
            "mop": mop,
            "bytes": traffic,
            "buffers": 1,
            "index": index,
            "begin_seconds": float(index),
            "seconds": one,
            "runs": 10,
            **more,
        }
        for index, one in enumerate(seconds)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two cells of `ops`: PyTorch at both sizes of two operations, JAX at one, and beside them a workload as ever."""
    folder = synthetic.make_run(tmp_path / "run")
    store = RunStore(folder)
    manifest = store.manifest()
    rows = {
        "torch-2.13.0-cpu": [
            *windows("matmul", "64x64x64", 0.5, 49152, [0.001, 0.003, 0.002]),
            *windows("matmul", "8x8x8", 0.001, 768, [0.0001] * 3),
            *windows("add", "1024", 1.0, 12_000_000, [0.01] * 3),
        ],
        "jax-0.10.2-cpu": windows("matmul", "64x64x64", 0.5, 49152, [0.004] * 3),
    }
    for image, operations in rows.items():
        entry = synthetic.cell(image, "ops")
        manifest["plan"].append(entry)
        ended = synthetic.ended(entry, 1, 4)
        ended |= {"samples": [], "metrics": [], "operations": operations}
        store.write_repeat(entry["id"], 1, ended)
    store.write_manifest(manifest)
    return folder


@pytest.fixture(autouse=True)
def _levels(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {(image, "ops"): 0.01 for image in ("torch-2.13.0-cpu", "jax-0.10.2-cpu")}
    monkeypatch.setattr(synthetic, "LEVELS", synthetic.LEVELS | known)


def shown(run: Path) -> tuple[operators.RateCurve, ...]:
    data = tables.load([run])
    (workload,) = [each for each in data.workloads if each.name == "ops"]
    (group,) = workload.groups
    return operators.curves(group, data.operations)


def test_a_rate_is_work_over_the_median_of_a_run(run: Path) -> None:
    found = {(curve.operation, curve.direction): curve for curve in shown(run)}
    assert set(found) == {("matmul", "forward"), ("add", "forward")}
    by_cell = {cell.framework: rates for cell, rates in found["matmul", "forward"].cells}
    assert [rate.size for rate in by_cell["torch"]] == ["8x8x8", "64x64x64"]  # from small to large
    assert by_cell["torch"][1].seconds == pytest.approx(0.0002)
    assert by_cell["torch"][1].gflops == pytest.approx(0.5e6 / 0.0002 / 1e9)
    assert by_cell["torch"][1].windows == 3
    assert by_cell["jax"][0].gigabytes == pytest.approx(49152 / 0.0004 / 1e9)


def test_what_moves_more_than_it_computes_is_told_in_bytes(run: Path) -> None:
    units = {curve.operation: curve.unit for curve in shown(run)}
    assert units == {"matmul": "GFLOP/s", "add": "GB/s"}


def test_each_size_is_a_row_with_a_gap_where_a_cell_has_none(run: Path) -> None:
    (matmul,) = [curve for curve in shown(run) if curve.operation == "matmul"]
    rows = matmul.rows()
    assert [size for size, _, _ in rows] == ["8x8x8", "64x64x64"]
    gaps = [[rate is None for rate in rates] for _, rates, _ in rows]
    assert sorted(gaps[0]) == [False, True]
    assert gaps[1] == [False, False]
    assert rows[1][2] == pytest.approx(0.5e6 / 0.0002 / 1e9)
    figure = charts.operator(matmul)
    assert figure is not None
    assert sorted(len(trace["x"]) for trace in figure["data"]) == [1, 2]


def test_windows_that_say_nothing_are_left_out() -> None:
    frame = pd.DataFrame(windows("add", "8", 1.0, 8, [0.0, 0.1]) + windows("add", "9", 1.0, 8, [0.1], runs=0))
    frame = frame.assign(run_id="r", cell_id="c", repeat=1)
    (rates,) = operators.rates(frame)["r", "c"].values()
    assert [(rate.size, rate.windows) for rate in rates] == [("8", 1)]


def test_a_level_that_changes_midway_is_marked() -> None:
    """The founding post's float64 product of 800 x 800: ten runs at nine times the later rate."""
    seconds = [0.0326] * 10 + [0.297 + 0.0001 * (at % 3) for at in range(20)]
    frame = pd.DataFrame(windows("matmul", "800x800x800", 1024.0, 1, seconds)).assign(run_id="r", cell_id="c", repeat=1)
    ((rate,),) = operators.rates(frame)["r", "c"].values()
    assert rate.shift is not None
    assert rate.shift.index == 10


def test_the_page_has_a_section_of_operations_and_ranks_only_the_rest(run: Path) -> None:
    output = run.parent / "report.html"
    reports.render([run], output)
    html = output.read_text("utf-8")
    assert "Single operations over their size" in html
    assert "matmul, forward" in html
    data = tables.load([run])
    assert {workload.name for workload in data.ranked} == {"cnn-cifar10", "gru-imdb"}
    assert all(group.key.workload != "ops" for group in data.groups)
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', html, re.S)
    assert found is not None
    titles = [figure["layout"]["yaxis"]["title"]["text"] for figure in json.loads(found[1])["figures"].values()]
    assert {"GFLOP/s", "GB/s"} <= set(titles)
