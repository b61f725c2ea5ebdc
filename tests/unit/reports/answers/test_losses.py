"""The losses of a run's frameworks at equal steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bench import rules
from reports.answers import losses as answers
from runner.results.cells import Key

STORED = "gru-imdb.64-of-4096.seed1.learning.txt"


def cells(*factors: float, precision: str = "fp32", workload: str = "gru-imdb") -> list[Any]:
    """Cells whose losses are the stored ones; those of the tenth step on have a factor."""
    losses = np.loadtxt(f"{rules.WORKLOADS}/{STORED}", ndmin=2)[0]
    key = Key(workload, precision, "quick", "cpu", "CPU", 1, 64, "files")
    steps = np.arange(1, len(losses) + 1)
    curves = [
        SimpleNamespace(name="loss", split="train", steps=steps, values=np.where(steps < 10, losses, factor * losses))
        for factor in factors
    ]
    return [
        SimpleNamespace(key=key, run_id="run", label=f"Framework {at}", repeats=[SimpleNamespace(curves=[curve])])
        for at, curve in enumerate(curves)
    ]


def said(*factors: float, **options: str) -> list[str]:
    return answers.disagreements(cast(Any, cells(*factors, **options)))


def test_frameworks_that_train_alike_say_nothing() -> None:
    assert said() == said(1.0) == said(1.0, 1.0 + 1e-6, 1.0 - 1e-6) == []


def test_a_framework_whose_loss_leaves_the_others_is_named_with_the_step() -> None:
    (sentence,) = said(1.0, 1.0, 1.001)
    assert "Framework 2" in sentence
    assert "at step" in sentence


@pytest.mark.parametrize("options", [{"precision": "tf32"}, {"workload": "gpt-bytes"}])
def test_where_no_spread_is_stored_nothing_is_said(options: dict[str, str]) -> None:
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
