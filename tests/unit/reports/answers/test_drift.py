"""A drift that all cells of a run share is said once: against simulated runs whose truth is known."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reports.answers import comparison as compare
from reports.answers.overview import common_change, drifts, overview
from reports.data import tables
from tests.fixtures import synthetic
from tests.fixtures.regimes import Regime, run


def changes(warming: float, cells: int, repeats: int, trials: int) -> list[float | None]:
    random, regime = np.random.default_rng([cells, repeats]), Regime(warming=warming, count=15)
    runs = (run(random, regime, np.linspace(1, 3, cells).tolist(), repeats) for _ in range(trials))
    return [common_change(np.log([[np.median(repeat) for repeat in cell] for cell in each])) for each in runs]


@pytest.mark.parametrize(("cells", "repeats"), [(2, 3), (6, 2), (6, 3), (20, 5)])
def test_a_run_that_did_not_drift_is_said_to_in_about_one_of_100_trials(cells: int, repeats: int) -> None:
    assert sum(change is not None for change in changes(0.0, cells, repeats, 1000)) <= 20


@pytest.mark.parametrize("repeats", [3, 5])
def test_a_machine_that_speeds_up_by_twelve_percent_is_told(repeats: int) -> None:
    found = [change for change in changes(0.12, 6, repeats, 200) if change is not None]
    assert len(found) >= 190
    # The first and the last repeat each hold a part of the warming.
    assert np.median(found) == pytest.approx(np.log(1 - 0.12) * (repeats - 1) / repeats, abs=0.01)


def test_the_report_and_the_comparison_tell_it_once(tmp_path: Path) -> None:
    still = synthetic.make_run(tmp_path / "still", repeats=3, windows=20)
    warming = synthetic.make_run(tmp_path / "warming", repeats=3, windows=20, draw=1, drift=0.95)
    data = tables.load([still, warming])
    (drift,) = drifts(data.cells)
    assert (drift.run_id, drift.repeats, drift.alike) == ("warming", (1, 3), drift.cells)
    words = "Drift in run warming: from repeat 1 to repeat 3 a step is "
    assert str(drift).startswith(words)
    assert overview(data).lead.count(words) == 1
    comparison = compare.comparison(data, "still", "warming")
    assert sum(line.startswith(words) for line in compare.remarks(comparison)) == 1
    assert "Drift" not in overview(tables.load([still])).lead


@pytest.mark.parametrize(("chance", "is_told"), [(0.0103, False), (0.0097, True)])
def test_a_drift_is_told_where_chance_makes_one_in_less_than_one_of_100_runs(chance: float, is_told: bool) -> None:
    """Four cells of two repeats leave three degrees of freedom. The rest of each is 0.01: a change has an error of 0.02 / sqrt(3)."""
    change = float(stats.t.isf(chance / 2, 3)) * 0.02 / math.sqrt(3)
    left = 0.01 * np.array([[1, -1], [-1, 1], [1, -1], [-1, 1]])
    found = common_change(left + np.array([0.0, change]))
    assert found == (pytest.approx(change) if is_told else None)


@pytest.mark.parametrize(
    ("ratio", "is_told"), [(1.0199, False), (1.0201, True), (1 / 1.0199, False), (1 / 1.0201, True)]
)
def test_a_drift_of_less_than_two_percent_is_not_told(ratio: float, is_told: bool) -> None:
    cells: list[Any] = [
        SimpleNamespace(
            unranked="",
            measured=[SimpleNamespace(number=number) for number in (1, 2)],
            run_id="run",
            key=SimpleNamespace(device_model="CPU"),
            anchor=f"cell-{at}",
            log_levels=[level, level + math.log(ratio)],
        )
        for at, level in enumerate((0.5, 1.5, 3.0))
    ]
    assert [drift.ratio for drift in drifts(cells)] == ([pytest.approx(ratio)] if is_told else [])
