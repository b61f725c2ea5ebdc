"""The table of results: its rows and columns, and the numbers that it hands to the page's script."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.answers import findings
from reports.answers.overview import overview
from reports.data import tables
from reports.page import results
from reports.page.markdown_report import markdown
from reports.page.page import Slice
from tests.fixtures import synthetic


@pytest.mark.parametrize("value", [1.06501, 1.06499, 85.8499, 0.02347501, 745.8349])
def test_a_figure_for_the_script_is_not_rounded_before_the_script_rounds_it(value: float) -> None:
    assert float(results._figure(value)) == value


def slice_of(*folders: Path) -> Slice:
    data = tables.load(folders)
    (shown,) = results.slices(findings.findings(data), data)
    return shown


def test_rows_and_columns_of_which_nothing_has_been_run_are_marked_and_counted(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "begun", manifest={"repeats": 3})
    shown = slice_of(synthetic.unrun(run, ("torch-2.13.0-cpu", "cnn-cifar10"), ("jax-0.10.2-cpu", "cnn-cifar10")))
    assert {row.name: row.unrun for row in shown.rows} == {
        "PyTorch 2.13.0": False,
        "JAX 0.10.2": False,
        "TensorFlow 2.21.0": True,
    }
    assert [(column.title, column.unrun) for column in shown.columns] == [
        ("CNN on CIFAR-10", False),
        ("GRU on IMDB reviews", True),
    ]
    assert shown.unrun == "4 cells that are not yet run are folded away (1 row, 1 column)"
    assert slice_of(synthetic.make_run(tmp_path / "whole")).unrun == ""


def test_where_nothing_has_been_run_nothing_is_folded_and_no_sentence_claims_a_measurement(tmp_path: Path) -> None:
    run = synthetic.unrun(synthetic.make_run(tmp_path / "none", manifest={"repeats": 3}))
    shown = slice_of(run)
    assert not any(row.unrun for row in shown.rows)
    assert shown.unrun == ""
    data = tables.load([run])
    assert {finding.headline for finding in findings.findings(data)} == {"Not measured yet"}
    text = markdown(overview(data))
    assert "measured windows" not in text
    assert text.rstrip().endswith("From stored runs: none.")


def test_a_cell_of_several_runs_has_one_row_which_names_the_run_where_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = synthetic.make_run(tmp_path / "20261120-000000-a", repeats=2)
    monkeypatch.setattr(synthetic, "FAILED", ("torch-2.13.0-cpu", "cnn-cifar10"))
    second = synthetic.make_run(tmp_path / "20261121-000000-b", repeats=2, draw=1)
    shown = slice_of(first, second)
    assert sorted(row.name for row in shown.rows) == ["JAX 0.10.2", "PyTorch 2.13.0", "TensorFlow 2.21.0"]
    assert not any("2026112" in row.rest for row in shown.rows)
    (torch,) = (row.entries[0] for row in shown.rows if row.name == "PyTorch 2.13.0")
    assert (torch.kind, torch.noted) == ("ranked", True)
    assert "; in run 20261121-000000-b: 2 of 2 repeats: out-of-memory" in torch.title
