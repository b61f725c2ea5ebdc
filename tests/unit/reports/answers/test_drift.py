"""A drift that all cells of a run share is said once: against simulated runs whose truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reports.answers import comparison as compare
from reports.answers.conditions import common_change, drifts
from reports.answers.overview import overview
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
    words = "Drift in run warming: from repeat 1 to repeat 3 a step takes "
    assert str(drift).startswith(words)
    assert overview(data).lead.count(words) == 1
    comparison = compare.comparison(data, "still", "warming")
    assert sum(line.startswith(words) for line in compare.remarks(comparison)) == 1
    assert "Drift" not in overview(tables.load([still])).lead
