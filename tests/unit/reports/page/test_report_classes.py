"""A workload of many labels in the report: its mean counts, each class has a column, and waiting for data is a cost."""

from __future__ import annotations

from pathlib import Path

import pytest

import reports.page.render
from reports.data.curves import by_class
from reports.data.tables import load
from reports.page.plots import learning
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import whole

XRAY = "densenet121-chestxray"


def xray_run(folder: Path, **columns: object) -> Path:
    """The synthetic run with its PyTorch CNN as a cell that classified X-rays and waited for a quarter of its steady time."""
    synthetic.make_run(folder, repeats=1)
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    tables = synthetic.ended(entry, 1, 40)
    tables["cells"][0].update(workload=XRAY, **columns)
    losses = [row for row in tables["metrics"] if row["name"] == "loss"]
    waiting = [
        {**row, "name": "waiting for data", "value": 0.9 if sample["stage"] != "steady" else 0.25}
        for row, sample in zip(losses, tables["samples"], strict=True)
    ]
    end = {"split": "test", "step": losses[-1]["step"], "train_seconds": losses[-1]["train_seconds"]}
    told = {"AUC of Edema": 0.71, "AUC of Hernia": None, "AUC of Mass": 0.63, "mean AUC": 0.67}
    tables["metrics"] = losses + waiting + [{**end, "name": name, "value": value} for name, value in told.items()]
    stored.write_repeat(folder, entry["id"], 1, tables)
    return folder


def test_the_score_is_the_mean_and_not_the_first_class(tmp_path: Path) -> None:
    (cell,) = [cell for cell in load([xray_run(tmp_path / "run")]).cells if cell.key.workload == XRAY]
    assert cell.score is not None
    assert (cell.score.name, cell.score.value) == ("mean AUC", 0.67)


def test_the_share_of_waiting_is_that_of_the_steady_windows(tmp_path: Path) -> None:
    cells = {cell.key.workload: cell for cell in load([xray_run(tmp_path / "run")]).cells}
    assert cells[XRAY].costs["data_waiting_share"] == pytest.approx(0.25)
    assert "data_waiting_share" not in cells["gru-imdb"].costs


def test_each_class_has_a_column_and_a_missing_one_says_so(tmp_path: Path) -> None:
    data = load([xray_run(tmp_path / "run")])
    (workload,) = [workload for workload in data.workloads if workload.name == XRAY]
    (group,) = workload.groups
    found = by_class(group)
    assert found is not None
    assert found.classes == ("Edema", "Hernia", "Mass")
    assert found.rows[0][1] == (0.71, None, 0.63)
    titles = [chart.caption for chart in learning(group, workload, 400)]
    # The mean is evaluated at the end alone, and single classes have the table.
    assert titles == ["training loss"] * 2 + ["training waiting for data"] * 2
    (other,) = [each for each in data.workloads if each.name == "gru-imdb"]
    assert by_class(other.groups[0]) is None


def test_the_page_shows_them_and_when_the_band_applies(tmp_path: Path) -> None:
    reports.page.render.render(
        [xray_run(tmp_path / "run", preset="full", data_source="files", short=False)], tmp_path / "page.html"
    )
    page = whole(tmp_path / "page.html")
    for words in (
        "Test metric of each class",
        ">Hernia<",
        ">0.710<",
        "Waiting for data",
        ">25.0",
        "0.79 and 0.83, given training",
    ):
        assert words in page, words
