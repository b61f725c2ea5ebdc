"""The pictures hold the numbers that they show: values at places, what is filled, what is named, which events are marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.answers.health import NOT_JUDGED, FleetHealth, GpuHealth, Health, NodeHealth
from reports.answers.run_history import history
from reports.data import tables
from reports.page import drawing as fleet_charts
from reports.page import plots
from reports.page.drawing import Axis, Picture, reaching
from tests.fixtures import synthetic
from tests.fixtures.pages import Mark, picture
from tests.unit.reports.answers.test_across import ladder

# Of eight GPUs, the deviations; the sixth is slow.
DEVIATIONS = (-0.002, 0.004, 0.0, -0.006, 0.001, 0.081, 0.003, -0.001)


def fleet(count: int = 8, workload: str = "cnn-cifar10", reason: str = "throttled by heat") -> FleetHealth:
    gpus = tuple(
        GpuHealth(at, f"{at:04x}", share, share - 0.01, share + 0.01, share > 0.05, reason if share > 0.05 else "")
        for at, share in enumerate(DEVIATIONS[at % 8] for at in range(count))
    )
    cell = f"PyTorch 2.9.1 · CUDA 12.8, {workload}"
    return FleetHealth("NVIDIA H200", cell, workload, "torch-2.9.1-cu128", gpus, -0.02, 0.02, True, "GPU 5 is slow.")


def healthy(*fleets: FleetHealth) -> Health:
    return replace(NOT_JUDGED, fleets=fleets)


# -- axes -----------------------------------------------------------------------------------------------------------------


def test_an_axis_places_values_in_proportion_and_never_beyond_its_ends() -> None:
    axis = Axis(0.0, 4.0)
    assert [axis(value) for value in (0.0, 1.0, 4.0, 9.0, -1.0)] == [0.0, 25.0, 100.0, 100.0, 0.0]
    upwards = Axis(1.0, 100.0, 200, 0, log=True)
    assert [upwards(value) for value in (1.0, 10.0, 100.0)] == pytest.approx([200.0, 100.0, 0.0])
    assert 0 <= Axis(1.0, 1.0)(1.0) <= 100


@pytest.mark.parametrize("values", [[0.0], [1e-9, 1e-9], [3.0, 7e12], [float("nan"), 2.0], [], [-1.0, 1.0]])
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_has_a_few_round_ticks_within_its_ends_whatever_the_values(values: list[float], log: bool) -> None:
    axis = reaching(values, 0, 100, log=log)
    assert len(axis.ticks) <= 7
    little = 1e-9 * max(abs(axis.low), abs(axis.high))
    assert all(axis.low - little <= tick <= axis.high + little for tick in axis.ticks)


def test_labels_of_an_axis_have_no_zeros_behind_the_point() -> None:
    drawing = Picture(100, Axis(0, 2000), Axis(0.5, 1.5, 100, 0))
    drawing.grid("x", "y")
    texts = picture(drawing.chart("place", "words").svg).texts
    assert {"0", "500", "1\u2009000", "0.6", "1", "1.4"} <= set(texts)


# -- versions -------------------------------------------------------------------------------------------------------------


def test_the_ladder_fills_the_points_where_only_cuda_changed_and_shows_times_beside_the_best(tmp_path: Path) -> None:
    data = tables.load([ladder(tmp_path / "run")])
    (chart,) = plots.ladder(data.workloads, data.groups)
    assert "H200" in chart.caption
    shown = picture(chart.svg)
    # 2.8.0 with CUDA 12.4, 2.9.1 with 12.6, 2.9.1 with 12.8: two images of the last are one version.
    assert [text for text in shown.texts if text in ("2.8.0", "2.9.1")] == ["2.8.0", "2.9.1", "2.9.1"]
    assert [text for text in shown.texts if text.startswith("12.")] == ["12.4", "12.6", "12.8"]
    points = sorted(shown.marks, key=lambda mark: mark.x)
    assert ["open" in mark.kinds for mark in points] == [True, True, False]
    levels = [mark.y for mark in points]
    assert levels[0] < levels[1] < levels[2]  # slower is higher
    assert (levels[2] - levels[0]) / (levels[2] - levels[1]) == pytest.approx(0.30 / 0.08, rel=0.35)
    assert points[2].words.startswith("CNN on CIFAR-10, PyTorch 2.9.1, CUDA 12.8: 1.00 × its best")


def test_one_version_is_no_ladder(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run")])
    assert plots.ladder(data.workloads, data.groups) == ()


# -- GPUs -----------------------------------------------------------------------------------------------------------------


def test_a_strip_has_a_row_for_each_gpu_its_interval_the_band_and_names_the_slow_one() -> None:
    (chart,) = fleet_charts.chart_of_gpus(healthy(fleet()))
    shown = picture(chart.svg)
    assert [text for text in shown.texts if text.startswith("GPU")] == [f"GPU {at} …{at:04x}" for at in range(8)]
    places = [mark.x for mark in shown.marks]
    scale = (places[5] - places[2]) / 0.081
    assert [(x - places[2]) / scale for x in places] == pytest.approx(DEVIATIONS, abs=2e-4)
    assert [mark.kinds >= {"alarm"} for mark in shown.marks] == [at == 5 for at in range(8)]
    ends = [line.places[0][0] for line in shown.of("line")]
    assert [(x - places[2]) / scale for x in ends] == pytest.approx([each - 0.01 for each in DEVIATIONS], abs=2e-4)
    (band,) = shown.of("normal")
    assert (band.places[1][0] - band.places[0][0]) / scale == pytest.approx(0.04, abs=2e-4)
    assert "+8.1 %: throttled by heat" in shown.texts
    assert "GPU 5 …0005: throttled by heat." in chart.caption
    assert "GPU 5 …0005 +8.1 % (+7.1 % to +9.1 %), slow: throttled by heat" in chart.words


def test_more_than_sixteen_gpus_are_a_grid_of_gpus_and_workloads() -> None:
    (grid,) = fleet_charts.chart_of_gpus(healthy(fleet(24), fleet(24, "gru-imdb")))
    shown = picture(grid.svg)
    assert len(shown.of("area")) == 2 * 24
    slow = [line.words for line in shown.of("alarm")]
    assert len(slow) == 2 * 3  # the sixth of each eight
    assert sum(text.startswith("◆ +8.1") for text in shown.texts) == 2 * 3
    assert grid.words.count("slow: throttled by heat") == 2 * 3
    assert len(fleet_charts.chart_of_gpus(healthy(fleet(16), fleet(16, "gru-imdb")))) == 2
    # Many fleets of few GPUs are grids too, four columns each.
    assert [len(picture(chart.svg).of("area")) for chart in fleet_charts.chart_of_gpus(healthy(*[fleet()] * 6))] == [
        4 * 8,
        2 * 8,
    ]


def test_gpus_of_several_nodes_are_a_map_with_the_slowest_node_first() -> None:
    hostile = "<b>rack-with-a-long-name-07</b>"
    names = (hostile, "n2", "n3")
    whole = fleet(24)
    gpus = tuple(replace(gpu, node=names[at // 8]) for at, gpu in enumerate(whole.gpus))
    nodes = (
        NodeHealth(hostile, 0.03, True, "power limit 500 W"),
        NodeHealth("n2", 0.001, False),
        NodeHealth("n3", 0, False),
    )
    (chart,) = fleet_charts.chart_of_gpus(healthy(replace(whole, gpus=gpus, nodes=nodes)))
    shown = picture(chart.svg)
    assert len(shown.of("area")) == 3 * (1 + 8)
    slow = [line.words for line in shown.of("alarm")]
    assert len(slow) == 1 + 3
    assert slow[0] == f"{hostile} +3.0 %, slow: power limit 500 W"
    assert slow[2].startswith("n2, GPU 13 …000d +8.1 %")
    texts = list(shown.texts)
    assert texts.index("+3.0") < texts.index("+0.1") < texts.index("+0.0")
    assert [text for text in texts if text in ("n2", "n3")] == ["n2", "n3"]
    assert texts.count("8") == 3
    assert "<b>" not in chart.svg
    assert "power limit 500 W" in chart.caption
    assert f"Nodes, the slowest first: {hostile} +3.0 %" in chart.words


def test_gpus_without_a_band_an_interval_or_an_index_are_drawn_and_hostile_words_are_text() -> None:
    hostile = "<script>x</script>\u202e" + "W" * 5000
    bare = GpuHealth(None, hostile, 0.5, None, None, True, hostile)
    alone = replace(fleet(), gpus=(bare,), low=None, high=None, model=hostile, cell=hostile, sentence=hostile)
    (chart,) = fleet_charts.chart_of_gpus(healthy(alone))
    assert "<script" not in chart.svg
    assert "\u202e" not in chart.svg
    assert len(chart.svg) < 10_000
    assert len(picture(chart.svg).marks) == 1
    assert fleet_charts.chart_of_gpus(healthy(replace(fleet(), gpus=()))) == ()


# -- runs -----------------------------------------------------------------------------------------------------------------


def test_a_line_for_each_cell_over_the_runs_with_the_change_before_one_marked(tmp_path: Path) -> None:
    runs = []
    for day in (1, 2, 3):
        driver = {"driver_version": "550" if day < 3 else "560"}
        slower = {("torch-2.13.0-cpu", "cnn-cifar10"): 1.2} if day == 3 else {}
        created = {"created": f"2026-11-0{day}T23:05:12+00:00"}
        run = synthetic.make_run(tmp_path / f"{day}", draw=day, everywhere=driver, manifest=created, slower=slower)
        runs.append(run)
    data = tables.load(runs)
    charts = plots.changes_over_time(data, history(data).again)
    assert len(charts) == 2
    chart = next(chart for chart in charts if "cnn-cifar10" in chart.caption)
    shown = picture(chart.svg)
    assert [text for text in shown.texts if text.startswith("11-")] == [f"11-0{day} 23:05" for day in (1, 2, 3)]
    (event,) = shown.of("dotted")
    torch = sorted((mark for mark in shown.marks if "PyTorch" in mark.words), key=lambda mark: mark.x)
    assert torch[1].x < event.places[0][0] < torch[2].x
    assert "1: driver 550 → 560" in chart.caption
    steps = rise(torch)
    assert steps[1] > 10 * abs(steps[0])  # a fifth longer, beside what runs scatter
    assert len(shown.marks) == 3 * 3


def rise(points: list[Mark]) -> list[float]:
    return [before.y - after.y for before, after in zip(points, points[1:], strict=False)]


def test_one_run_has_no_changes(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run")])
    assert plots.changes_over_time(data, history(data).again) == ()
