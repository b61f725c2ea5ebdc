"""Several devices in the report: speed-up and efficiency of known levels, the metric beside them, and a model that finds a known truth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from reports.answers import scale_model, scaling
from reports.answers.scale_model import ModelError
from reports.data import tables
from reports.page import charts
from reports.page.render import page
from runner.results.statistics import Array
from tests.fixtures import synthetic
from tests.fixtures.pages import figures

TRUTH = {"compute": 0.100, "latency": 0.002, "transfer": 0.015}


def true_seconds(devices: int, strong: bool = False, terms: Mapping[str, float] = TRUTH) -> float:
    row = scale_model.features([devices], strong)[0]
    return float(row @ np.array([terms[name] for name in scale_model.TERMS]))


def measured(counts: list[int], seed: int, noise: float, strong: bool = False) -> dict[int, list[Array]]:
    """Windows of three repeats, whose levels differ as much as the windows in them do."""
    rng = np.random.default_rng(seed)
    return {
        count: [true_seconds(count, strong) * np.exp(rng.normal(0, noise) + rng.normal(0, noise, 40)) for _ in range(3)]
        for count in counts
    }


@pytest.mark.parametrize("strong", [False, True])
def test_without_noise_the_model_is_the_truth(strong: bool) -> None:
    points = {count: [np.full(20, true_seconds(count, strong))] for count in (1, 2, 4, 8, 16)}
    found = scale_model.model(points, strong, [8, 128])
    assert found.terms == pytest.approx(TRUTH, rel=1e-6)
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert [each.measured for each in found.predictions] == [True, False]
    assert found.predictions[1].seconds == pytest.approx(true_seconds(128, strong))


def test_the_interval_of_a_prediction_holds_the_truth_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(60):
        found = scale_model.model(measured([1, 2, 4, 8, 16, 32], seed, 0.01), False, [128])
        (far,) = found.predictions
        hits += far.low <= true_seconds(128) <= far.high
    assert hits >= 53, "95 % of 60 are 57; fewer than 53 has a chance of 2 %"


def test_a_term_that_is_not_there_is_none_and_never_negative() -> None:
    points = {count: [np.full(20, 0.1)] for count in (1, 2, 4)}
    found = scale_model.model(points, False, [1024])
    assert found.terms == pytest.approx({"compute": 0.1, "latency": 0.0, "transfer": 0.0})
    sets = scale_model.fit([1, 2, 4], np.random.default_rng(1).uniform(0.05, 0.2, (200, 3)), False)
    assert np.isfinite(sets).all()
    assert (sets >= 0).all()


def test_two_device_counts_carry_no_model() -> None:
    with pytest.raises(ModelError, match=r"2 device counts \(1, 128\)"):
        scale_model.model({1: [np.full(20, 0.1)], 128: [np.full(20, 0.128)]}, False, [1024])


def shown(folder: Path) -> tuple[scaling.Scaling, ...]:
    return scaling.scalings(tables.load([folder]))


def test_speed_up_and_efficiency_are_of_items_a_second(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {1: 0.1, 2: 0.125, 4: 0.16})
    synthetic.add_scaling(run, {2: 0.0625, 4: 0.05}, "strong")
    weak, strong = shown(run)
    assert (weak.kind, strong.kind) == ("weak", "strong")
    for found, expected in ((weak, {2: 1.6, 4: 2.5}), (strong, {2: 1.6, 4: 2.0})):
        assert [point.devices for point in found.points] == [1, 2, 4]
        for point in found.points[1:]:
            assert point.speed_up.value == pytest.approx(expected[point.devices], rel=0.02)
            assert point.speed_up.low is not None
            assert point.speed_up.high is not None
            assert point.speed_up.low < point.speed_up.value < point.speed_up.high
            assert point.efficiency.value == pytest.approx(point.speed_up.value / point.devices)
    assert weak.points[2].rate.value == pytest.approx(4 * 64 / 0.16, rel=0.02)
    assert strong.points[2].rate.value == pytest.approx(64 / 0.05, rel=0.02)


@pytest.mark.parametrize(("workload", "metric"), [("cnn-cifar10", "accuracy"), ("densenet121-chestxray", "mean AUC")])
def test_a_metric_that_falls_with_the_devices_is_flagged(tmp_path: Path, workload: str, metric: str) -> None:
    """As Chainer's mean AUC did on four GPUs in the published run."""
    run = synthetic.make_run(tmp_path / "run")
    reached = {1: 0.80, 2: 0.79, 4: 0.55}
    synthetic.add_scaling(run, dict.fromkeys(reached, 0.1), accuracy=reached, metric=metric, workload=workload)
    (found,) = shown(run)
    assert [point.metric for point in found.points] == list(reached.values())
    assert [point.flag.split(":")[0] for point in found.points] == ["", "", "below one device's band"]
    assert "its speed means nothing" in page(tables.load([run]))


def test_a_metric_of_other_training_is_not_compared(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {1: 0.1, 2: 0.1}, accuracy={1: 0.80, 2: 0.55}, items=None)
    (found,) = shown(run)
    assert found.points[1].flag == "not comparable: trained on 2 × as many images as one device"


def test_a_prediction_is_dashed_named_and_apart_from_what_was_measured(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {count: true_seconds(count) for count in (1, 2, 4, 8)})
    (found,) = shown(run)
    figure = charts.scaling(found)
    assert figure is not None
    by_name = {trace.get("name"): trace for trace in figure["data"]}
    assert by_name["measured"]["x"] == [1, 2, 4, 8]
    assert by_name["predicted"]["line"]["dash"] == "dash"
    assert by_name["predicted"]["x"][-1] == 1024
    (at_128, rate, efficiency), (at_1024, *_) = found.far
    assert (at_128, at_1024) == (128, 1024)
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < 128 * 64 / true_seconds(128) < rate.high
    assert efficiency.value == pytest.approx(TRUTH["compute"] / true_seconds(128), rel=0.1)
    assert "Predicted, not measured:" in page(tables.load([run]))


def test_what_carries_no_prediction_says_why(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {1: 0.1, 2: 0.11})
    synthetic.add_scaling(run, {1: 0.1, 2: 0.15, 4: 0.3}, device_kind="cpu", device_model=synthetic.CPU)
    reasons = {found.key.device_kind: found.refused for found in shown(run)}
    assert reasons["cuda"].startswith("2 device counts (1, 2)")
    assert reasons["cpu"] == "the devices of a CPU share it, so more of them would add nothing"


def test_strong_scaling_is_not_predicted_beyond_its_batch(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    seconds = {count: true_seconds(count, strong=True) for count in (1, 2, 4)}
    synthetic.add_scaling(run, seconds, "strong")
    (found,) = shown(run)
    assert found.model is not None
    assert found.model.predictions[-1].devices == 64
    assert "a batch of 64 cannot be shared among so many" in page(tables.load([run]))


def test_the_section_is_there_only_for_several_devices_and_escapes_what_it_shows(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    assert 'id="scaling"' not in page(tables.load([run]))
    synthetic.add_scaling(run, {1: 0.1, 2: 0.11, 4: 0.12}, device_model="<img src=x onerror=alert(1)>")
    html = page(tables.load([run]))
    assert 'id="scaling"' in html
    assert "<img src=x" not in html
    assert "measured" in {trace.get("name") for figure in figures(html).values() for trace in figure["data"]}


def test_a_run_of_before_there_was_scaling_is_read_and_shown(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    run = synthetic.make_run(tmp_path / "run")
    for path in (run / "cells").glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.drop_columns(["scaling"]), path)
    assert {cell.key.scaling for cell in tables.load([run]).cells} == {""}
    assert "Several devices" not in page(tables.load([run]))
