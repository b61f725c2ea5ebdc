"""What the answers say of cells that are not yet run, learned too little, or were measured once; and speed-ups of unsteady ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reports.answers import findings, plain, scaling, standing_words
from reports.answers.overview import overview
from reports.data import tables
from reports.data.model import Tables
from reports.page import markdown_report
from reports.page.drawing import Axis, Picture
from reports.page.render import page
from reports.wording import device_name
from runner.results.store import RunStore
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import whole

FULL = {"data_source": "files", "short": False}


def caveats(data: Tables, device: str) -> str:
    found = (one for one in findings.findings(data) if one.group.key.device == device)
    return " ".join(words for one in found for words in one.caveats)


def full_run(folder: Path, accuracy: float) -> Tables:
    """One GPU's cell of a whole run on real data, and two more that are not."""
    synthetic.make_run(folder, windows=6)
    synthetic.add_scaling(folder, {1: 0.1}, preset="full", accuracy={1: accuracy})
    stored.change(folder, "cells", lambda row: {**row, **FULL} if row["preset"] == "full" else row)
    return tables.load([folder])


def test_a_full_run_that_ends_outside_its_band_is_said_beside_its_speed(tmp_path: Path) -> None:
    low = full_run(tmp_path / "low", 0.62)
    said = "Outside what a correct full run reaches (accuracy 0.75 to 0.8): PyTorch 2.13.0 (0.620)."
    assert said in caveats(low, "Synthetic GPU")
    assert "outside the band" in whole(page(low))
    assert said not in caveats(low, synthetic.CPU), "a quick run on generated data is held against no band"
    right = full_run(tmp_path / "right", 0.77)
    assert "Outside" not in caveats(right, "Synthetic GPU")
    assert "outside the band" not in whole(page(right))


def test_a_cell_that_lacks_repeats_is_ranked_by_those_that_it_has_and_the_others_are_announced(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", windows=6, manifest={"repeats": 3})])
    assert "Not ranked: TensorFlow 2.21.0 (failed)." in caveats(data, synthetic.CPU)
    assert f"{2 * len(data.cells)} repeats are still to come." in overview(data).lead


def test_a_cell_that_is_not_yet_run_is_in_no_answer_and_in_the_list_of_what_is_to_come(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6, manifest={"skips": []})
    synthetic.unrun(folder, ("torch-2.13.0-cpu", "cnn-cifar10"))
    data = tables.load([folder])
    assert overview(data).title == f"PyTorch on {device_name(synthetic.CPU)}"
    assert [finding.workload.name for finding in findings.findings(data)] == ["cnn-cifar10"]
    assert f"1 ended well and {len(data.waiting)} not yet run" in overview(data).lead
    assert f"{len(data.cells)} cells from 3 images and 2 workloads " in overview(data).lead
    assert "5 repeats are still to come (5 cells without any repeat)." in overview(data).lead
    shown = whole(page(data))
    waiting = len(re.findall(r'class="none(?: sparse)?(?: unrun)?">not yet run</td>', shown))
    assert waiting == len(data.waiting) == 5, "also those of a workload of which no cell has begun"
    assert "not planned" not in shown
    assert f"Still to come: {len(data.waiting)} cells" in shown
    assert f"runner matrix --resume {data.runs[0].run_id}" in shown
    assert "No answer" not in shown


def test_workloads_that_an_image_fails_at_are_one_list_and_not_a_section_each(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    stored.change(
        folder, "cells", lambda row: {**row, "status": "failed", "error_kind": "engine", "reason": "no such image"}
    )
    data = tables.load([folder])
    sections = [section for section in plain.sections(data) if section.heads]
    assert [section.above[0] for section in sections] == [
        "No answer for 2 workloads: no cell has a measurement that may be ranked."
    ]
    assert len(sections[0].rows) == len(data.cells) == 6
    assert all("no such image" in row[-1] for row in sections[0].rows)
    assert markdown_report.markdown(overview(data)).count("No answer") == 1


def test_two_precisions_of_one_workload_are_not_said_to_be_two_workloads(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    stored.change(
        folder, "cells", lambda row: {**row, "status": "failed", "error_kind": "engine", "reason": "no such image"}
    )
    halved = [one["id"] for one in RunStore(folder).manifest()["plan"] if one["image"].startswith("torch")]
    stored.change(folder, "cells", lambda row: {**row, "precision": "amp-bf16"} if row["cell_id"] in halved else row)
    (section,) = [one for one in plain.sections(tables.load([folder])) if one.heads]
    assert section.above[0].startswith("No answer for 2 workloads in 4 groups of cells: ")
    assert len({row[0] for row in section.rows}) == 4


def test_a_run_of_which_nothing_ended_well_says_none(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6, manifest={"skips": []})
    synthetic.unrun(folder)
    assert "none ended well and 6 not yet run" in overview(tables.load([folder])).lead


def test_one_repeat_among_several_is_named_and_not_said_of_all(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=2, windows=12, manifest={"repeats": 1})
    one = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")["id"]
    stored.remove(folder, lambda row: (row["cell_id"], row["repeat"]) == (one, 2))
    said = caveats(tables.load([folder]), synthetic.CPU)
    assert "Measured once (PyTorch 2.13.0): a second run may differ" in said
    assert "Measured once:" not in said
    (cnn, _) = findings.findings(tables.load([folder]))
    notes = {entry.cell.framework: standing_words.note(entry) for entry in cnn.group.behind}
    assert notes == {"torch": "one run: looks faster", "tensorflow": "open"}, (
        "the cells with two repeats are not of one run"
    )


def test_repeats_of_one_and_two_are_not_said_to_be_one_run(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=2, windows=12)
    one = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")["id"]
    stored.remove(folder, lambda row: (row["cell_id"], row["repeat"]) == (one, 2))
    data = tables.load([folder])
    finding = next(finding for finding in findings.findings(data) if finding.group.key.workload == "cnn-cifar10")
    assert len(finding.group.ranked) > 1
    section = next(part for part in plain.sections(data) if part.rows)
    assert [line for line in section.below if line.startswith("measured once: 1 cell. Go on with ")]
    assert [
        line
        for line in section.below
        if line.startswith("open: which of JAX 0.10.2 and TensorFlow 2.21.0 is faster, after 2 repeats. ")
    ]
    assert [row[-1] for row in section.rows] == ["one run: looks faster", "", "open"]
    assert '<span class="warn">1 to 2 repeats</span>' in whole(page(data))
    assert "measured once" not in finding.headline


def test_counts_of_one_model_are_not_counted_as_devices(tmp_path: Path) -> None:
    folder = synthetic.add_scaling(synthetic.make_run(tmp_path / "run", windows=6), {1: 0.1, 2: 0.105, 4: 0.11})
    title = overview(tables.load([folder])).title
    assert title == f"JAX, PyTorch and TensorFlow 2 on {device_name(synthetic.CPU)} and Synthetic GPU"


def slowed(row: dict[str, Any]) -> dict[str, Any]:
    """A window of the second half takes a third longer."""
    return {**row, "seconds": row["seconds"] * (4 / 3 if row["index"] >= 24 else 1)}


def test_the_speed_up_of_an_unsteady_cell_spans_its_levels(tmp_path: Path) -> None:
    folder = synthetic.add_scaling(synthetic.make_run(tmp_path / "run", windows=6), {1: 0.1, 2: 0.1})
    synthetic.with_windows(folder, synthetic.scaled_cell(2)["id"], slowed)
    (found,) = scaling.scalings(tables.load([folder]))
    two = found.points[1]
    assert two.cells[0].shifts
    for estimate, before in ((two.speed_up, 2.0), (two.rate, 1280.0)):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < 0.77 * before
        assert estimate.high > 0.98 * before


def test_what_a_device_and_a_precision_did_is_said_at_the_top(tmp_path: Path) -> None:
    half = dict.fromkeys(synthetic.LEVELS, 0.5)
    folders = [
        synthetic.make_run(tmp_path / "a", repeats=3, windows=20),
        synthetic.make_run(tmp_path / "b", repeats=3, windows=20, slower=half, everywhere={"device_model": "Zippy"}),
        synthetic.make_run(tmp_path / "c", repeats=3, windows=20, slower=half, everywhere={"precision": "amp-bf16"}),
    ]
    data = tables.load(folders)
    said = "\n".join(overview(data).changes)
    gru = "GRU on IMDB reviews, training"
    share = r"(1\.9\d|2\.\d\d)( to 2\.\d\d)? times as fast in 2 of 2 cells\."
    assert re.search(f"^{gru}, fp32, preset quick: {synthetic.CPU} → Zippy: the median step is {share}$", said, re.M)
    assert re.search(f"^{gru}, {synthetic.CPU}, preset quick: fp32 → amp-bf16: the median step is {share}$", said, re.M)
    assert "times as fast in 2 of 2 cells." in markdown_report.markdown(overview(data))


def test_a_long_name_in_a_picture_is_cut_and_markup_in_it_is_text() -> None:
    picture = Picture(40, Axis(0, 1))
    for name in ("short", "x" * 100, "<b>"):
        picture.words(0, 10, name, longest=28)
    names = re.findall(r"<text [^>]*>([^<]*)</text>", picture.chart("place", "words").svg)
    assert names == ["short", "x" * 27 + "…", "&lt;b&gt;"]
