"""Several devices in the report: speed-up and efficiency of known levels, the metric beside them, and a model that finds a known truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reports.answers import scaling
from reports.answers.scaling import ModelError
from reports.data import tables
from reports.page import plots
from reports.page.render import page
from runner.results.cells import step_of
from runner.results.statistics import Array
from tests.fixtures import synthetic
from tests.fixtures.pages import picture, pictures, whole

TRUTH = {"compute": 0.100, "latency": 0.002, "transfer": 0.015}


def true_seconds(devices: int, strong: bool = False, terms: Mapping[str, float] = TRUTH) -> float:
    row = scaling.features([devices], strong)[0]
    return float(row @ np.array([terms[name] for name in scaling.TERMS]))


def measured(
    counts: list[int], truth: Callable[[int], float], random: np.random.Generator, noise: float
) -> dict[int, list[Array]]:
    """Windows of three repeats, whose levels differ as much as the windows in them do."""
    return {
        count: [truth(count) * np.exp(random.normal(0, noise) + random.normal(0, noise, 40)) for _ in range(3)]
        for count in counts
    }


@pytest.mark.parametrize("strong", [False, True])
def test_without_noise_the_model_is_the_truth(strong: bool) -> None:
    points = {count: [np.full(20, true_seconds(count, strong))] * 2 for count in (1, 2, 4, 8, 16)}
    found = scaling.model(points, strong, [16, 128])
    assert found.terms == pytest.approx(TRUTH, rel=1e-6)
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert [bound.devices for bound in found.bounds] == [16, 128]
    assert found.bounds[1].seconds == pytest.approx(true_seconds(128, strong))


def in_nodes_of_8(cards: int) -> Callable[[int], float]:
    """Fast links among eight devices, and `cards` network cards for each eight."""

    def seconds(n: int) -> float:
        inside, nodes = min(n, 8), max(1, n // 8)
        return 0.1 + 0.001 * np.log2(n) + 0.008 * (inside - 1) / inside + 0.12 / cards * (nodes - 1) / nodes

    return seconds


# Seconds of a step by devices: the model's own kind, and what machines do beyond it.
MACHINES: dict[str, Callable[[int], float]] = {
    "the model": true_seconds,
    "a network card for each device": in_nodes_of_8(8),
    "a network card for eight devices": in_nodes_of_8(1),
    "a ring": lambda n: 0.1 + 0.0005 * (n - 1) + 0.03 * (n - 1) / n,
    "communication hides behind computing": lambda n: 0.1 + max(0.0, 0.004 * np.log2(n) + 0.06 * (n - 1) / n - 0.04),
    "congestion beyond 64 devices": lambda n: 0.1 + 0.004 * np.log2(n) + 0.03 * (3 if n > 64 else 1) * (n - 1) / n,
    "one cost for all that share": lambda n: 0.1 + 0.02 * (n > 1),
    "no cost at all": lambda n: 0.1,
}


def held(machine: str, counts: list[int], trials: int, noise: float, seed: int) -> float:
    """The share of trials in which 128 devices take at least as long as the bound says."""
    truth, random = MACHINES[machine], np.random.default_rng(seed)
    models = (scaling.model(measured(counts, truth, random, noise), False, [128]) for _ in range(trials))
    return sum(truth(128) >= found.bounds[0].seconds for found in models) / trials


@pytest.mark.parametrize("machine", MACHINES)
def test_128_devices_take_at_least_as_long_as_the_bound_says(machine: str) -> None:
    assert held(machine, [1, 2, 4, 8], 12, 0.02, 8) >= 11 / 12


@pytest.mark.skipif(os.environ.get("DLBENCH_SIMULATIONS") != "all", reason="minutes: DLBENCH_SIMULATIONS=all")
@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize("counts", [[1, 2, 4], [1, 2, 4, 8], [1, 2, 4, 8, 16], [1, 2, 4, 8, 16, 32]])
def test_the_bound_holds_in_95_of_100_trials_on_every_machine(counts: list[int], noise: float) -> None:
    shares = {machine: held(machine, counts, 150, noise, len(counts)) for machine in MACHINES}
    assert {machine: share for machine, share in shares.items() if share < 0.95} == {}


def test_the_bound_of_the_models_own_machine_is_near_its_truth() -> None:
    random = np.random.default_rng(4)
    points = (measured([1, 2, 4, 8, 16], true_seconds, random, 0.005) for _ in range(10))
    bounds = [scaling.model(each, False, [128]).bounds[0].seconds for each in points]
    assert np.median(bounds) > 0.88 * true_seconds(128)


def test_one_repeat_of_a_count_bounds_nothing() -> None:
    points = {count: [np.full(20, 0.1)] * (1 if count == 4 else 3) for count in (1, 2, 4)}
    with pytest.raises(ModelError, match="one repeat on 4 devices does not show .* measure with --repeats 3"):
        scaling.model(points, False, [128])


def test_the_residual_is_the_points_own_deviation_from_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """With five counts and three terms two degrees of freedom are left: a single residual says little, the mean of many squares all."""
    monkeypatch.setattr(scaling, "DRAWS", 20)
    random, squares = np.random.default_rng(6), []
    for _ in range(120):
        noisy = {count: true_seconds(count) * np.exp(random.normal(0, 0.002)) for count in (1, 2, 4, 8, 16)}
        found = scaling.model({count: [np.full(20, one)] * 2 for count, one in noisy.items()}, False, [])
        assert found.residual is not None
        squares.append(found.residual**2)
    assert np.sqrt(np.mean(squares)) == pytest.approx(0.002, rel=0.2)


def test_a_bound_is_the_time_that_one_draw_of_two_hundred_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """All draws of a count are one ladder of errors, so the times of 128 devices are the ladder, too."""
    monkeypatch.setattr(scaling.statistics, "error_draws", lambda step, rng, draws: np.linspace(-1, 1, draws))
    points = {count: [np.full(20, 0.1)] * 2 for count in (1, 2, 4)}
    (bound,) = scaling.model(points, False, [128]).bounds
    # A part of 0.005 of the ladder from -1 to 1 lies below -0.99.
    assert np.log(bound.seconds / 0.1) == pytest.approx(-0.99, abs=0.001)


@pytest.mark.parametrize(
    ("reached", "trained", "flag"),
    [
        (0.781, 1.00, ""),
        (0.779, 1.00, "below one device's band"),
        (0.779, 1.09, "below one device's band"),
        (0.779, 1.11, "not comparable"),
        (0.779, 1 / 1.09, "below one device's band"),
        (0.779, 1 / 1.11, "not comparable"),
    ],
)
def test_a_metric_is_flagged_from_a_band_of_two_hundredths_on_and_compared_at_a_tenth_more_training_at_most(
    reached: float, trained: float, flag: str
) -> None:
    def cells(value: float, steps: float) -> Any:
        score = SimpleNamespace(value=value, low=value, steps=steps)
        return (SimpleNamespace(score=score, items_per_step=64.0),)

    workload: Any = SimpleNamespace(learns=True, items="images")
    assert scaling._flag(cells(reached, 1000 * trained), cells(0.80, 1000), workload).split(":")[0] == flag


def test_a_model_needs_three_device_counts_and_bounds_no_more_than_128_devices(tmp_path: Path) -> None:
    def of(*counts: int) -> scaling.Scaling:
        run = synthetic.make_run(tmp_path / f"of-{len(counts)}")
        synthetic.add_scaling(run, dict.fromkeys(counts, 0.1), repeats=2, windows=12)
        (found,) = shown(run)
        return found

    assert of(1, 2).model is None
    found = of(1, 2, 4).model
    assert found is not None
    assert [bound.devices for bound in found.bounds] == [4, 8, 16, 32, 64, 128]


def test_a_term_that_is_not_there_is_none_and_never_negative() -> None:
    points = {count: [np.full(20, 0.1)] * 2 for count in (1, 2, 4)}
    found = scaling.model(points, False, [128])
    assert found.terms == pytest.approx({"compute": 0.1, "latency": 0.0, "transfer": 0.0})
    sets = scaling.fit([1, 2, 4], np.random.default_rng(1).uniform(0.05, 0.2, (200, 3)), False)
    assert np.isfinite(sets).all()
    assert (sets >= 0).all()


def test_two_device_counts_carry_no_model() -> None:
    with pytest.raises(ModelError, match=r"2 device counts \(1, 128\)"):
        scaling.model({1: [np.full(20, 0.1)], 128: [np.full(20, 0.128)]}, False, [256])


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
            step = step_of([repeat for cell in point.cells for repeat in cell.repeats])
            assert step is not None
            items = point.cells[0].items_per_step
            # The most items a second are those of the shortest step.
            assert (point.rate.low, point.rate.high) == (items / step.high, items / step.low)
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
    assert "its speed means nothing" in whole(page(tables.load([run])))


def test_a_metric_of_other_training_is_not_compared(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {1: 0.1, 2: 0.1}, accuracy={1: 0.80, 2: 0.55}, items=None)
    (found,) = shown(run)
    assert found.points[1].flag == "not comparable: trained on 2 × as many images as one device"


def test_a_bound_is_dashed_named_and_apart_from_what_was_measured(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {count: true_seconds(count) for count in (1, 2, 4, 8)}, repeats=3)
    (found,) = shown(run)
    measured, forecast = (plots.scaling([found], each) for each in (False, True))
    assert measured is not None
    assert forecast is not None
    drawing = picture(measured.svg)
    assert [mark.x for mark in drawing.marks] == pytest.approx(
        [0, 100 / 3, 200 / 3, 100], abs=0.01
    )  # 1, 2, 4, 8 on a log axis
    assert "at most" not in measured.svg
    (bound,) = [line for line in picture(forecast.svg).of("dotted") if line.words.endswith("at most, not measured")]
    assert [round(x) for x, _ in bound.places] == [43, 57, 71, 86, 100]  # 8, 16, 32, 64, 128 of 1 to 128
    # From 1.1 at the top of 240 pixels to 0.
    assert [1.1 * (1 - mark.y / 240) for mark in drawing.marks] == pytest.approx(
        [point.efficiency.value for point in found.points], abs=1e-3
    )
    assert found.farthest is not None
    devices, most, efficiency = found.farthest
    assert devices == 128
    assert 128 * 64 / true_seconds(128) < most < 1.15 * 128 * 64 / true_seconds(128)
    assert TRUTH["compute"] / true_seconds(128) < efficiency < 1.02
    html = whole(page(tables.load([run])))
    assert "At most, not measured:" in html
    assert "1\u2009024 devices" not in html


def test_devices_of_a_cpu_have_a_picture_of_their_own_and_say_how_they_share_its_threads(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {1: 0.1, 2: 0.1})
    synthetic.add_scaling(run, {1: 0.1, 2: 0.2, 4: 0.4}, device_kind="cpu", device_model=synthetic.CPU, batch=32)
    html = whole(page(tables.load([run])))
    gpus, cpus = (pictures(html)[f"plot-{name}"] for name in ("scaling", "scaling-cpu"))
    assert (len(gpus.marks), len(cpus.marks)) == (2, 3)
    ideal = [[round(1.1 * (1 - y / 240), 2) for _, y in each.of("dotted")[0].places] for each in (gpus, cpus)]
    assert [set(shares) for shares in ideal] == [{1.0}, {1.0, 0.5, 0.25}]
    # Twice the work in twice the time, by the threads that one device had.
    assert [1.1 * (1 - mark.y / 240) for mark in cpus.marks] == pytest.approx([1, 0.5, 0.25], rel=0.02)
    (point,) = [point for each in shown(run) if each.on_a_cpu for point in each.points if point.devices == 2]
    said = {}
    for threads in (
        {},
        {"threads_asked": 2},
        {"threads_asked": 2, "threads_of_all": 2},
        {"threads_asked": 1, "threads_of_all": 2},
    ):
        cell = replace(point.cells[0], environment={"settings": threads})
        said[replace(point, cells=(cell,)).threads] = replace(point, devices=1, cells=(cell,)).threads
    assert said == {"": "2", "2 that all share": "2", "1 each": "1"}
    assert "not said" in html


def test_what_carries_no_bound_says_why(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {1: 0.1, 2: 0.11})
    synthetic.add_scaling(run, {1: 0.1, 2: 0.15, 4: 0.3}, device_kind="cpu", device_model=synthetic.CPU)
    reasons = {found.key.device_kind: found.refused for found in shown(run)}
    assert reasons["cuda"].startswith("2 device counts (1, 2)")
    synthetic.add_scaling(run, {1: 0.1, 2: 0.11, 4: 0.12}, batch=32)
    once = next(found.refused for found in shown(run) if found.key.batch == 32)
    assert once.startswith("one repeat on 1, 2 and 4 devices does not show")
    assert once in whole(page(tables.load([run])))
    assert reasons["cpu"] == "the devices of a CPU share it, so more of them would add nothing"


def test_strong_scaling_is_not_bounded_beyond_its_batch(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    seconds = {count: true_seconds(count, strong=True) for count in (1, 2, 4)}
    synthetic.add_scaling(run, seconds, "strong", repeats=2)
    (found,) = shown(run)
    assert found.farthest is not None
    assert found.farthest[0] == 64
    assert "At most, not measured:</b> 64 devices" in whole(page(tables.load([run])))


def test_the_section_is_there_only_for_several_devices_and_escapes_what_it_shows(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    assert 'id="scaling"' not in whole(page(tables.load([run])))
    synthetic.add_scaling(run, {1: 0.1, 2: 0.11, 4: 0.12}, device_model="<img src=x onerror=alert(1)>")
    html = whole(page(tables.load([run])))
    assert 'id="scaling"' in html
    assert "<img src=x" not in html
    assert "efficiency" in pictures(html)["plot-scaling"].texts
