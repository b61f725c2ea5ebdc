"""An answer over several runs: each cell stands in it once, and it is said which runs speak."""

from __future__ import annotations

from pathlib import Path

from reports.answers import findings
from reports.answers.findings import Finding
from reports.answers.overview import overview
from reports.data import tables
from reports.page import markdown_report, results
from tests.fixtures import stored, synthetic

DAYS = {
    name: {"created": f"2026-11-{day}T08:00:00+00:00"}
    for name, day in (("monday", 16), ("tuesday", 17), ("friday", 20))
}


def answers(folder: Path, **drivers: str) -> list[Finding]:
    """The answers over runs of these names, each with its driver."""
    runs = [
        synthetic.make_run(
            folder / name, repeats=2, draw=draw, everywhere={"driver_version": driver}, manifest=DAYS[name]
        )
        for draw, (name, driver) in enumerate(drivers.items())
    ]
    return list(findings.findings(tables.load(runs)))


def test_runs_between_which_nothing_changed_count_as_one_with_all_their_repeats(tmp_path: Path) -> None:
    for found in answers(tmp_path, tuesday="550", monday="550"):
        labels = [entry.cell.label for entry in found.group.ranked]
        assert len(set(labels)) == len(labels) <= 3
        assert not any("monday" in label or "tuesday" in label for label in labels)
        assert all(len(entry.cell.repeats) == 4 for entry in found.group.ranked)
        assert all(entry.cell.run_id == "tuesday" for entry in found.group.ranked)  # where its link leads
        assert "Each cell counts once, with the repeats of all runs" in found.caveats[0]


def test_after_a_change_the_newest_state_counts_and_the_change_is_told(tmp_path: Path) -> None:
    found = answers(tmp_path, monday="550", tuesday="580", friday="580")[0]
    assert all(len(entry.cell.repeats) == 4 for entry in found.group.ranked)
    said = [words for words in found.caveats if "counts as run" in words]
    assert len(said) == 3
    assert "counts as run tuesday and friday measured it, after driver 550 → 580." in said[0]


def test_one_run_is_left_as_it_is(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2)])
    assert [found.group for found in findings.findings(data)] == list(data.groups)


def test_the_summary_of_several_runs_lists_each_cell_once(tmp_path: Path) -> None:
    runs = [
        synthetic.make_run(tmp_path / name, repeats=2, draw=at, manifest=DAYS[name]) for at, name in enumerate(DAYS)
    ]
    text = markdown_report.markdown(overview(tables.load(runs)))
    assert text.count("| PyTorch 2.13.0 |") == 2  # one for each workload
    assert "cell counts once" in text


def test_a_cell_that_failed_in_all_runs_stands_in_the_row_of_its_other_workloads(tmp_path: Path) -> None:
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    folders = [
        synthetic.make_run(tmp_path / name, repeats=1, draw=at, manifest=DAYS[name])
        for at, name in enumerate(("monday", "tuesday"))
    ]
    for failing in (folders[1:], folders):  # at first one of the two, then both
        for folder in failing:
            stored.write_repeat(folder, entry["id"], 1, {"cells": [synthetic.failed_row(entry)]})
        data = tables.load(folders)
        (table,) = results.slices(list(findings.findings(data)), data)
        # A second failure of the same cell, or one beside a figure, is named in the pointer's text of the one entry.
        (whole,) = [row for row in table.rows if row.name == "PyTorch 2.13.0"]
        assert whole.rest == ""
        assert "ranked" in {one.kind for one in whole.entries}
        assert ("failed" in {one.kind for one in whole.entries}) == (len(failing) == 2)
        (named,) = [one for one in whole.entries if "; in run " in one.title]
        assert f"in run {'monday' if len(failing) == 2 else 'tuesday'}: out-of-memory" in named.title
