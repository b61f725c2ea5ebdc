"""Operations in the report: rates from windows, the right unit, every cell in its column, and nothing ranked by a step time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reports.page.render
from bench import rules
from reports.answers import answers_table, plain
from reports.answers.overview import overview
from reports.data import costs, operators, tables
from reports.data.costs import OF_DATASHEET, OF_OWN_PRODUCT
from reports.data.model import Rate
from reports.data.operators import Peak, RateCurve, peak_of, utilised
from reports.page import assembly
from reports.page.markdown_report import markdown
from runner.results.cells import Key
from runner.results.gpu_facts import datasheet
from runner.results.on_disk.schema import arrow_schema
from runner.results.plausible.counts import least_bytes
from runner.results.store import RunStore
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import picture, pictures, whole


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


def as_stored(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as the store's table, of the repeat that a row names, or of the first."""
    keys = {"run_id": "r", "cell_id": "c", "repeat": 1}
    return pa.Table.from_pylist([keys | row for row in rows], schema=arrow_schema("operations"))


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
        stored.write_repeat(store.folder, entry["id"], 1, ended)
    store.write_manifest(manifest)
    return folder


@pytest.fixture(autouse=True)
def _levels(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {(image, "ops"): 0.01 for image in ("torch-2.13.0-cpu", "jax-0.10.2-cpu")}
    monkeypatch.setattr(synthetic, "LEVELS", synthetic.LEVELS | known)


def shown(run: Path, devices: int = 1) -> tuple[operators.RateCurve, ...]:
    data = tables.load([run])
    (workload,) = [each for each in data.workloads if each.name == "ops"]
    (group,) = (each for each in workload.groups if each.key.devices == devices)
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


def test_a_cell_of_single_operations_is_no_network_that_could_not_be_ranked(run: Path) -> None:
    assert " not ranked: " not in whole(reports.page.render.page(tables.load([run])))


def test_what_moves_more_than_it_computes_is_told_in_bytes(run: Path) -> None:
    units = {curve.operation: curve.unit for curve in shown(run)}
    assert units == {"matmul": "GFLOP/s", "add": "GB/s"}


def test_each_size_is_a_row_with_a_gap_where_a_cell_has_none(run: Path) -> None:
    (matmul,) = [curve for curve in shown(run) if curve.operation == "matmul"]
    rows = matmul.rows()
    assert [size for size, _ in rows] == ["8x8x8", "64x64x64"]
    gaps = [[rate is None for rate in rates] for _, rates in rows]
    assert sorted(gaps[0]) == [False, True]
    assert gaps[1] == [False, False]
    chart = assembly.operator("place", matmul, {})
    assert chart is not None
    names = [mark.words.partition(",")[0] for mark in picture(chart.svg).marks]
    assert sorted(map(names.count, set(names))) == [1, 2]


def test_the_kernel_that_was_taken_stands_below_its_rate(run: Path) -> None:
    (rates,) = operators.rates(as_stored(windows("attention_d64", "8", 1.0, 8, [0.1] * 3, kernel="flash attention")))[
        "r", "c"
    ].values()
    assert [rate.kernels for rate in rates] == [("flash attention",)]
    curve = dataclasses.replace(shown(run)[0], peak=None)
    assert assembly._rate(curve, rates[0], False, None)[1] == "10.0\u00a0ms, flash attention"


def test_windows_that_say_nothing_are_left_out() -> None:
    stored = as_stored(windows("add", "8", 1.0, 8, [0.0, 0.1]) + windows("add", "9", 1.0, 8, [0.1], runs=0))
    (rates,) = operators.rates(stored)["r", "c"].values()
    assert [(rate.size, rate.windows) for rate in rates] == [("8", 1)]


def on(model: str, precision: str, rate: Rate, operation: str = "matmul", direction: str = "forward") -> RateCurve:
    """A curve of one rate on a GPU."""
    key = Key("ops", precision, "quick", "cuda", model, 1, 1, "generated")
    return RateCurve(operation, direction, ((None, (rate,)),), peak_of(key))  # type: ignore[arg-type]


def test_a_rate_has_its_share_of_the_datasheet() -> None:
    """33.5 TFLOP/s on a GPU of 67, and 2.4 TB/s of 4.8."""
    product = Rate("4096x4096x4096", 137_439.0, 2e8, 137_439e6 / 33.5e12, 30, None, 1)
    assert on("NVIDIA H200", "fp32", product).share(product) == pytest.approx(0.5)
    assert on("NVIDIA H200", "bf16", product).share(product) == pytest.approx(33.5 / 989.4)
    assert on("NVIDIA H200", "amp-bf16", product).share(product) == pytest.approx(33.5 / 989.4)
    sum_ = Rate("16384", 268.4, 3.2e9, 3.2e9 / 2.4e12, 30, None, 1)
    assert on("NVIDIA H200", "fp32", sum_, "add").share(sum_) == pytest.approx(0.5)
    in_cache = Rate("512", 0.26, 3e6, 3e6 / 9e12, 30, None, 16)
    assert on("NVIDIA H200", "fp32", in_cache, "add").share(in_cache) is None
    assert not on("NVIDIA H200", "fp32", in_cache, "add").refused(in_cache)
    copy = Rate("268435456", 0.0, 2.7e8, 0.005, 30, None, 2)
    assert on("NVIDIA H200", "fp32", copy, "h2d", "copy").share(copy) is None  # it is not the memory's


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "a.c"])
def test_a_device_whose_datasheet_is_not_known_has_no_share(model: str) -> None:
    rate = Rate("8", 1.0, 8.0, 1e-12, 3, None, 1)
    curve = on(model, "fp32", rate)
    assert curve.share(rate) is None
    assert not curve.refused(rate)


def repeated(gflops: float, levels: Sequence[float]) -> Rate:
    """A rate of repeats that took so many times as long as it says, six windows each."""
    seconds = 1.024 / gflops
    repeats = tuple(np.full(6, seconds * level) for level in levels)
    return Rate("800x800x800", 1024.0, 1.5e7, seconds, 6 * len(levels), None, 4, repeats)


def test_the_best_of_a_row_is_marked_only_where_repeats_set_it_apart() -> None:
    curve = on("a.c", "fp32", repeated(100, [1.0]))
    steady, wide = [0.99, 1.0, 1.01], [0.9, 1.0, 1.1]
    first, second = repeated(110, steady), repeated(100, steady)
    assert curve.best([second, first]) is first
    assert curve.best([repeated(110, wide), repeated(100, wide)]) is None
    assert curve.best([repeated(110, [1.0]), second]) is None  # one repeat does not tell
    assert curve.best([first, None]) is None


def test_of_rates_that_are_alike_a_best_one_is_marked_in_at_most_five_of_100_rows() -> None:
    random = np.random.default_rng(6)
    curve = on("a.c", "fp32", repeated(100, [1.0]))
    marked = 0
    for _ in range(200):
        sides = np.exp(random.normal(0, 0.02, (5, 3, 1)) + random.normal(0, 0.05, (5, 3, 6)))
        row = [Rate("8", 1.0, 8.0, float(np.median(side)), 18, None, 1, tuple(side)) for side in sides]
        marked += curve.best(row) is not None
    assert marked <= 10


def test_a_rate_above_the_peak_is_refused_and_never_the_best() -> None:
    """The founding post's float64 product on a GPU of 224 GFLOP/s: 1883 first, 206.6 later."""
    fast, real, slower = (repeated(rate, [0.99, 1.0, 1.01]) for rate in (1883.0, 206.6, 150.0))
    curve = on("NVIDIA GeForce RTX 2060 SUPER", "fp64", fast)
    both = RateCurve(curve.operation, curve.direction, ((None, (fast,)), (None, (real,))), curve.peak)  # type: ignore[arg-type]
    assert [both.refused(rate) for rate in (fast, real)] == [True, False]
    assert both.best([fast, real]) is None  # no other is left
    assert both.best([slower, None, fast, real]) is real
    conv = on("NVIDIA GeForce RTX 2060 SUPER", "fp32", fast, "conv2d")
    assert not conv.refused(Rate("", 1024.0, 1.5e7, 1.024 / (3 * 7200), 1, None, 4))  # Winograd


def test_each_datasheet_is_read() -> None:
    """Every row names a GPU of its own and has rates that grow from fp64 to fp16."""
    models = [
        "Tesla K80",
        "Tesla V100-SXM2-16GB",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA H100 PCIe",
        "NVIDIA L40S",
        "NVIDIA B200",
    ]
    for model in models:
        found = {p: peak_of(Key("ops", p, "quick", "cuda", model, 1, 1, "")) for p in ("fp64", "fp32", "fp16")}
        assert all(found.values())
        rates = [peak.flops for peak in found.values() if peak and peak.flops]
        assert rates == sorted(rates)
        assert 0.2e12 < rates[0] < 1e14
    assert peak_of(Key("ops", "fp32", "quick", "cuda", "NVIDIA H200", 2, 1, "")) is None
    assert peak_of(Key("ops", "fp32", "quick", "cpu", "NVIDIA H200", 1, 1, "")) is None


def test_the_page_tells_shares_and_refuses(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device of 2 GFLOP/s: PyTorch's 2.5 of the larger product is refused, JAX's 1.25 is five eighths."""
    monkeypatch.setattr(operators, "peak_of", lambda key: Peak(2e9, 1e15))
    (matmul,) = [curve for curve in shown(run) if curve.operation == "matmul"]
    chart = assembly.operator("place", matmul, {})
    assert chart is not None
    smaller, jax = sorted(picture(chart.svg).marks, key=lambda mark: -mark.y)
    assert "62.5\u00a0% of the ceiling" in jax.words
    assert smaller.y > jax.y  # of the axis from 0 at the bottom to 1
    assert jax.y == pytest.approx(120 * (1 - 0.625), abs=0.1)
    output = run.parent / "report.html"
    reports.page.render.render([run], output)
    html = whole(output)
    assert html.count("above the device's peak</span>") == 1
    assert "share of the peak" in html
    assert "62.5\u00a0%" in html
    assert "2.50" not in html.partition("matmul, forward")[2].partition("</table>")[0]


@pytest.mark.parametrize("repeats", [(1,), (1, 2, 3)])
def test_a_level_that_changes_midway_is_marked(repeats: tuple[int, ...]) -> None:
    """The founding post's float64 product of 800 x 800: ten runs at nine times the later rate."""
    seconds = [0.0326] * 10 + [0.297 + 0.0001 * (at % 3) for at in range(20)]
    steady = seconds[10:]
    rows = [
        {**row, "repeat": repeat}
        for repeat in repeats
        for row in windows("matmul", "800x800x800", 1024.0, 1, seconds if repeat == repeats[-1] else steady)
    ]
    ((rate,),) = operators.rates(as_stored(rows))["r", "c"].values()
    assert rate.shift is not None
    assert rate.shift.index == 10


def test_the_page_has_a_section_of_operations_and_ranks_only_the_rest(run: Path) -> None:
    output = run.parent / "report.html"
    reports.page.render.render([run], output)
    html = whole(output)
    assert "Single operations over their size" in html
    assert "matmul, forward" in html
    data = tables.load([run])
    assert {workload.name for workload in data.ranked} == {"cnn-cifar10", "gru-imdb"}
    assert all(group.key.workload != "ops" for group in data.groups)
    titles = {words for shown in pictures(html).values() for words in shown.texts}
    assert {"of the ceiling", "million operations a run"} <= titles


# -- what was reached --------------------------------------------------------------------------------------------------


def measured(store: RunStore, image: str, operations: list[dict[str, Any]], devices: int = 1) -> dict[str, Any]:
    entry = synthetic.cell(image, "ops", devices)
    ended = synthetic.ended(entry, 1, 4)
    ended |= {"samples": [], "metrics": [], "operations": operations}
    stored.write_repeat(store.folder, entry["id"], 1, ended)
    return entry


@pytest.fixture
def reached_run(tmp_path: Path) -> Path:
    """PyTorch with the best product (4 GFLOP/s) and a sum from memory (20 GB/s), JAX with half as good a product and one in a cache."""
    folder = synthetic.make_run(tmp_path / "reached")
    store = RunStore(folder)
    manifest = store.manifest()
    jumped = [0.0001] * 10 + [0.01 + 0.00001 * (at % 3) for at in range(20)]
    manifest["plan"] += [
        measured(
            store,
            "torch-2.13.0-cpu",
            [
                *windows("matmul", "100x100x100", 2.0, 120_000, [0.005] * 3),
                *windows("matmul", "800x800x800", 1024.0, 7_680_000, jumped),
                *windows("conv2d", "1x2x3", 3.0, 100_000, [0.005] * 3),
                *windows("add", "4096", 16.8, 200_000_000, [0.1] * 3),
                *windows("add", "64", 0.1, 1_000_000, [0.0001] * 3),
            ],
        ),
        measured(store, "jax-0.10.2-cpu", windows("matmul", "100x100x100", 2.0, 120_000, [0.01] * 3)),
    ]
    store.write_manifest(manifest)
    return folder


def test_the_ceiling_is_the_best_of_the_run_with_the_windows_it_comes_from(reached_run: Path) -> None:
    found = shown(reached_run)
    (ceiling,) = operators.ceilings(found).values()
    assert ceiling.work is not None
    assert ceiling.work.value == pytest.approx(4e9)  # not the product whose level changed midway, nor the convolution
    assert (ceiling.work.cell.framework, ceiling.work.operation, ceiling.work.rate.size) == (
        "torch",
        "matmul",
        "100x100x100",
    )
    assert ceiling.traffic is not None
    assert ceiling.traffic.value == pytest.approx(20e9)  # not the faster sum that fits a cache
    curves = {curve.operation: curve for curve in found}
    rates = {cell.framework: each for cell, each in curves["matmul"].cells}
    assert ceiling.share(curves["matmul"], rates["jax"][0]) == pytest.approx(0.5)
    ((_, sums),) = curves["add"].cells
    assert [ceiling.share(curves["add"], rate) for rate in sums] == [None, pytest.approx(1.0)]


def test_a_network_s_arithmetic_is_a_share_of_the_best_product_of_its_run(reached_run: Path) -> None:
    cells = tables.load([reached_run]).cells
    network = next(cell for cell in cells if cell.key.workload == "cnn-cifar10" and cell.status == "ok")
    assert network.step is not None
    assert network.items_per_step is not None
    reached = 6 * 62.26e6 * network.items_per_step / network.step.value
    assert network.costs[OF_OWN_PRODUCT] == pytest.approx(reached / 4e9)
    assert OF_DATASHEET not in network.costs, "a CPU has no datasheet here"
    assert not any(OF_OWN_PRODUCT in cell.costs for cell in cells if cell.key.workload == "ops")


def test_a_network_token_by_token_shows_its_times_beside_the_floor_of_its_memory(reached_run: Path) -> None:
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    rows["cells"][0].update(workload="gpt2-decode-16")
    place = {name: rows["metrics"][0][name] for name in ("train_seconds",)} | {"split": "test"}
    told = [(rules.FIRST_TOKEN, value) for value in (0.3, 0.25, 0.9)]
    told += [(rules.BETWEEN_TOKENS, 0.04), (rules.BETWEEN_TOKENS_99, 0.07)]
    rows["metrics"] = [{**place, "step": at, "name": name, "value": value} for at, (name, value) in enumerate(told)]
    stored.write_repeat(reached_run, entry["id"], 1, rows)
    found = tables.load([reached_run])
    cell = next(cell for cell in found.cells if cell.key.workload == "gpt2-decode-16")
    due = least_bytes("gpt2-decode-16", cell.items_per_step or 0, "fp32")
    assert due
    times = {costs.FIRST_TOKEN: 0.3, costs.BETWEEN: 0.04, costs.BETWEEN_99: 0.07, costs.FLOOR_MEASURED: due / 20e9}
    shown = {cost.name: cell.costs[cost.name] for cost in costs.OF_TOKENS if cost.name in cell.costs}
    assert shown == pytest.approx(times), "a CPU has no datasheet here"
    heads = ["first token, median", "between tokens, median", "between tokens, 99th percentile"]
    heads.append("memory-bound step, best measured bandwidth")
    words = ["300\N{NO-BREAK SPACE}ms", "40.0\N{NO-BREAK SPACE}ms", "70.0\N{NO-BREAK SPACE}ms"]
    (section,) = [section for section in plain.sections(found) if heads[0] in section.heads]
    assert [head for head in section.heads if head in heads] == heads
    assert set(heads) <= set(section.numbers)
    assert [list(row)[section.heads.index(heads[0]) :][:3] for row in section.rows] == [words]
    summary = markdown(overview(found))
    assert f"| {' | '.join(heads)} |" in summary
    assert f"| {' | '.join(' '.join(word.split()) for word in words)} |" in summary
    (record,) = [row for row in answers_table.answer_records(found) if row["workload"] == "gpt2-decode-16"]
    assert {name: record[name] for name in times} == pytest.approx(times)
    others = [row for row in answers_table.answer_records(found) if row["workload"] != "gpt2-decode-16"]
    assert {row[name] for row in others for name in times} == {None}
    output = reached_run.parent / "report.html"
    reports.page.render.render([reached_run], output)
    page = whole(output)
    assert 'Between tokens<span class="sub">99th percentile</span>' in page
    assert "The first token comes after the whole prompt." in page
    assert 'Memory-bound step<span class="sub">best measured bandwidth</span>' in page
    gpu = dataclasses.replace(cell.key, device_kind="cuda", device_model="NVIDIA H100 80GB HBM3")
    (on_a_gpu,) = utilised([dataclasses.replace(cell, key=gpu, costs={})], {})
    sheet = datasheet("NVIDIA H100 80GB HBM3", "fp32")
    assert sheet
    assert on_a_gpu.costs[costs.FLOOR] == pytest.approx(due / sheet.bytes)


def test_the_page_tells_the_ceiling_its_source_and_each_share(reached_run: Path) -> None:
    output = reached_run.parent / "report.html"
    reports.page.render.render([reached_run], output)
    html = whole(output)
    told = html.partition("Measured ceiling of this device in")[2].partition("</p>")[0]
    assert "4.00 GFLOP/s" in told
    assert "20.0 GB/s" in told
    assert "100x100x100" in told
    (linked, _) = re.findall(r'href="#([^"]+)"', told)
    assert f'<details id="{linked}">' in html
    assert "50.0\u00a0% of the ceiling" in html


def test_the_roofs_stand_apart_and_each_operation_below_its_own(reached_run: Path) -> None:
    curves = [dataclasses.replace(curve, peak=Peak(8e9, 40e9)) for curve in shown(reached_run)]
    chart = assembly.roofline("place", curves, operators.ceilings(curves).values())
    assert chart is not None
    drawing = picture(chart.svg)
    (measured_roof,), (datasheet,) = drawing.of("dashed"), drawing.of("dotted")
    assert measured_roof.words.startswith("measured in")
    assert datasheet.words == "datasheet"
    best = min(mark.y for mark in drawing.marks if "matmul" in mark.words)
    assert min(y for _, y in measured_roof.places) == pytest.approx(best, abs=0.02)  # the best product is the ceiling
    assert min(y for _, y in datasheet.places) < best
    # Both roofs have a slope and then a level; the slope is one to one.
    assert [len(line.places) for line in (measured_roof, datasheet)] == [3, 3]
    assert measured_roof.places[1][1] == measured_roof.places[2][1]
    names = [mark.words.partition(":")[0] for mark in drawing.marks]
    assert sorted(map(names.count, set(names))) == [1, 3]
    line = assembly._roof(4e9, 20e9, [0.01, 10.0])
    assert line == [(0.01, pytest.approx(0.2)), (pytest.approx(0.2), pytest.approx(4.0)), (10.0, pytest.approx(4.0))]
    without = assembly.roofline("place", [dataclasses.replace(curve, peak=None) for curve in curves], ())
    assert without is None  # points under no roof tell nothing


@pytest.mark.parametrize(
    ("name", "direction", "bus"),
    [
        ("all_reduce", "reduce", 12.0),
        ("reduce_scatter", "collective", 6.0),
        ("all_gather", "collective", 6.0),
        ("all_to_all", "collective", 6.0),
        ("broadcast", "collective", 8.0),
        ("send_receive", "collective", 8.0),
    ],
)
def test_a_collective_has_two_bandwidths_and_no_ceiling(tmp_path: Path, name: str, direction: str, bus: float) -> None:
    """8 MB in 1 ms among four: 8 GB/s by the bytes, and by nccl-tests' factor over each link."""
    folder = synthetic.make_run(tmp_path / "several")
    store = RunStore(folder)
    manifest = store.manifest()
    rows = windows(name, "8000000", 0.0, 8_000_000, [0.01] * 3, direction=direction)
    manifest["plan"].append(measured(store, "torch-2.13.0-cpu", rows, devices=4))
    store.write_manifest(manifest)
    (curve,) = shown(folder, 4)
    ((_, (rate,)),) = curve.cells
    assert curve.unit == "GB/s"
    assert curve.value(rate) == pytest.approx(8.0)
    assert curve.bus_bandwidth(rate) == pytest.approx(bus)
    assert operators.ceilings([curve]) == {}
    output = tmp_path / "report.html"
    reports.page.render.render([folder], output)
    assert f"bus {bus:#.3g} GB/s" in whole(output)
    assert "time of a run, bus bandwidth" in whole(output)
