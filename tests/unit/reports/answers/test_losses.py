"""The losses of a run's frameworks at equal steps."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bench import rules
from reports.answers import findings as answers
from runner.results.cells import Key

STORED = "gru-imdb.64-of-4096.seed1.learning.txt"


def cells(*factors: float, precision: str = "fp32", workload: str = "gru-imdb", devices: int = 1) -> list[Any]:
    """Cells whose losses are the stored ones; those of the tenth step on have a factor."""
    losses = np.loadtxt(f"{rules.WORKLOADS}/{STORED}", ndmin=2)[0]
    key = Key(workload, precision, "quick", "cpu", "CPU", devices, 64, "files")
    steps = np.arange(1, len(losses) + 1)
    curves = [
        SimpleNamespace(name="loss", split="train", steps=steps, values=np.where(steps < 10, losses, factor * losses))
        for factor in factors
    ]
    return [
        SimpleNamespace(key=key, run_id="run", label=f"Framework {at}", repeats=[SimpleNamespace(curves=[curve])])
        for at, curve in enumerate(curves)
    ]


def said(*factors: float, **options: Any) -> list[str]:
    return answers.disagreements(cast(Any, cells(*factors, **options)))


def test_frameworks_that_train_alike_say_nothing() -> None:
    assert said() == said(1.0) == said(1.0, 1.0 + 1e-6, 1.0 - 1e-6) == []


def test_a_framework_whose_loss_leaves_the_others_is_named_with_the_step() -> None:
    (sentence,) = said(1.0, 1.0, 1.001)
    assert "Framework 2" in sentence
    assert "at step" in sentence


@pytest.mark.parametrize("options", [{"precision": "tf32"}, {"workload": "gpt-bytes"}, {"devices": 2}, {"devices": 3}])
def test_where_no_spread_is_stored_nothing_is_said(options: dict[str, Any]) -> None:
    assert said(1.0, 2.0, **options) == []


@pytest.mark.parametrize(("workload", "batch"), [("gru-imdb", 64), ("cnn-cifar10", 64), ("mlp-mnist", 60000)])
def test_no_two_stored_runs_of_one_seed_part(workload: str, batch: int) -> None:
    growth = answers.growth(workload, batch)
    assert len(growth) > 10
    for seed in range(1, 7):
        items = {"gru-imdb": 4096, "cnn-cifar10": 4096, "mlp-mnist": 60000}[workload]
        runs = np.loadtxt(rules.losses_path_of_seed(workload, batch, seed, items), ndmin=2)[:, : len(growth)]
        apart = np.abs(runs[:, None] - runs[None]) / runs.mean(axis=0)
        assert (apart < answers.DEVIATIONS * answers.OF_TWO * growth).all()


@pytest.mark.parametrize(("distance", "is_said"), [(0.99, False), (1.01, True)])
def test_losses_part_at_six_deviations_of_the_difference_of_two_runs(
    distance: float, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    deviation = 1e-4
    monkeypatch.setattr(answers, "growth", lambda workload, batch: np.full(30, deviation))
    assert bool(said(1.0, 1.0, 1.0 + distance * 6 * math.sqrt(2) * deviation)) == is_said


def test_a_step_s_spread_is_that_of_three_steps_on_each_side_and_at_least_that_of_rounding() -> None:
    runs = np.ones((2, 21))
    runs[1, 10] = 1.01
    mean, square = 1.005, 0.01**2 / 2
    squares = answers._spread(runs) ** 2
    floor = 2.0**-32
    expected = np.full(21, floor)
    expected[7:14] = (square / mean**2 + 6 * floor) / 7
    assert squares == pytest.approx(expected, rel=1e-9)
