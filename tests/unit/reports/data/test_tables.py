"""Stored runs to typed rows: put together, kept apart, ranked. Every run here goes through the real Parquet store."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.answers import findings
from reports.answers.contrast import Side
from reports.answers.overview import overview
from reports.answers.standing import Rival, standing
from reports.data import tables
from reports.data.groups import Comparable, blocks_of, groups_of
from reports.data.model import MeasuredCell, ParityRow, Skipped, Tables
from reports.page import markdown_report, render
from reports.page.results import failure
from runner.results.store import TABLES, RunStore, StoreError, read
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import whole


def load(*folders: Path) -> Tables:
    manifests = [RunStore(folder).manifest() for folder in folders]
    return tables.build(manifests, {name: read(folders, name) for name in TABLES})


def cell(data: Tables, image: str, workload: str) -> MeasuredCell:
    (found,) = [one for one in data.cells if one.image.startswith(image) and one.key.workload == workload]
    return found


def rewrite(folder: Path, image: str, **changes: Any) -> None:
    """Store the first cell of an image's CNN again with other columns, in a run that is already there."""
    entry = synthetic.cell(image, "cnn-cifar10")
    for repeat in range(1, RunStore(folder).manifest()["repeats"] + 1):
        rows = synthetic.ended(entry, repeat, 40)
        rows["cells"][0].update(changes)
        stored.write_repeat(folder, entry["id"], repeat, rows)


def test_a_run_becomes_one_group_for_each_workload_fastest_first(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run"))
    assert [workload.name for workload in data.workloads] == ["cnn-cifar10", "gru-imdb"]
    (group,) = data.workloads[0].groups
    assert [entry.cell.framework for entry in group.ranked] == ["torch", "jax", "tensorflow"]
    assert group.ranked[0].ratio.value == 1.0
    ratio = group.ranked[2].ratio
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 0.1987 / 0.1312 * 1.03
    assert ratio.high > 0.1987 / 0.1312 * 0.97


def at_amp(folder: Path, precision: str = "amp-bf16") -> Path:
    """The same run with every cell at another precision."""
    shutil.copytree(folder, folder.with_name("amp"))
    stored.rename(folder.with_name("amp"), "amp")
    stored.change(folder.with_name("amp"), "cells", lambda row: {**row, "precision": precision})
    return folder.with_name("amp")


@pytest.mark.parametrize("precision", ["tf32", "amp-fp16", "amp-bf16", "bf16"])
def test_a_wide_precision_is_ranked_where_the_same_adapter_passed_parity_at_fp32(
    tmp_path: Path, precision: str
) -> None:
    """Its own bounds are too wide for a wrong epsilon."""
    full = synthetic.make_run(tmp_path / "full")
    amp = at_amp(full, precision)
    alone = load(amp)
    assert not any(group.ranked for group in alone.groups)
    well = [one for one in alone.cells if one.status == "ok"]
    assert {one.unranked for one in well} == {f"no parity at fp32 here: measure --precision fp32,{precision}"}
    assert {failure(one) for one in well} == {("unranked", "no parity at fp32")}
    assert all(one.comparable for one in well), "each may be held against itself"
    page = whole(render.page(alone))
    assert "Nothing could be ranked" in page
    assert "Not measured yet" not in page

    both = load(amp, full)
    assert not [one for one in both.cells if one.status == "ok" and one.unranked]
    rests = cell(alone, "torch", "cnn-cifar10").cell_id
    mixed = {one.at_fp32 for one in both.cells if one.image.startswith("torch") and one.key.workload == "cnn-cifar10"}
    assert mixed == {"", f"{rests} of run full"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"parity_passed": False}, "parity at fp32 failed, in "),
        # Refused by another check: that its first tensors passed proves nothing.
        (
            {"status": "failed", "error_kind": "parity", "reason": "it did not check decoded logits"},
            "no parity at fp32 here: ",
        ),
        ({"image_digest": "sha256:another"}, "no parity at fp32 here: "),
        ({"code_sha256": "another", "bench_sha256": "another"}, "no parity at fp32 here: "),
        ({"framework": "tensorflow"}, "no parity at fp32 here: "),
        # Any mode will do, unless the cell's own failed.
        ({"mode": "compile"}, ""),
        ({"mode": "compile", "parity_passed": False}, "no parity at fp32 here: "),
        # A precision with workloads of one network: all sources are the same.
        ({"code_sha256": "another"}, ""),
    ],
)
def test_mixed_precision_is_not_ranked_beside_another_adapter_at_fp32(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    full = synthetic.make_run(tmp_path / "full")
    stored.change(full, "cells", lambda row: {**row, "bench_sha256": "a"})
    amp = at_amp(full)
    stored.change(full, "cells", lambda row: {**row, **change} if row["image"].startswith("torch") else row)
    (found,) = [
        one
        for one in load(amp, full).cells
        if one.run_id == "amp" and one.image.startswith("torch") and one.key.workload == "cnn-cifar10"
    ]
    assert found.unproved.startswith(why) if why else not found.unproved
    assert bool(found.unranked) is bool(why)


def test_every_good_repeat_has_to_rest_on_a_passed_one_of_its_own_image(tmp_path: Path) -> None:
    full = synthetic.make_run(tmp_path / "full", repeats=2)
    amp = at_amp(full)

    def at(repeat: int, change: dict[str, Any]) -> Any:
        return lambda row: {**row, **change} if row["repeat"] == repeat else row

    stored.change(amp, "cells", at(2, {"image_digest": "sha256:another"}))
    mixed = [one for one in load(amp, full).cells if one.run_id == "amp" and one.status == "ok"]
    assert {one.unproved for one in mixed} == {"no parity at fp32 here: measure --precision fp32,amp-bf16"}
    # One of that image at fp32 that was not checked is no proof, though the cell's other repeat is.
    stored.change(full, "cells", at(1, {"image_digest": "sha256:another", "parity_passed": None}))
    mixed = [one for one in load(amp, full).cells if one.run_id == "amp" and one.status == "ok"]
    assert all(one.unproved for one in mixed)


@pytest.mark.parametrize("name", ["/etc/passwd", "**", "a**b", "../mlp-mnist"])
def test_a_workload_of_any_name_has_a_page(tmp_path: Path, name: str) -> None:
    run = synthetic.make_run(tmp_path / "run")
    stored.change(run, "cells", lambda row: {**row, "workload": name})
    assert "</html>" in render.page(load(run))


@pytest.mark.parametrize("lock", ["its own", "another"])
def test_within_a_run_an_image_is_that_of_its_lock_as_each_node_may_have_made_it(tmp_path: Path, lock: str) -> None:
    run = synthetic.make_run(tmp_path / "run")
    elsewhere = {"workload": "cnn-cifar10", "precision": "amp-bf16", "image_digest": "sha256:of another node"}
    elsewhere |= {"lock_sha256": "another"} if lock == "another" else {}
    stored.change(run, "cells", lambda row: {**row, **elsewhere} if row["workload"] == "gru-imdb" else row)
    mixed = [one for one in load(run).cells if one.key.precision == "amp-bf16" and one.status == "ok"]
    assert mixed
    assert {bool(one.unproved) for one in mixed} == {lock == "another"}


def test_step_time_and_rate_come_from_steady_windows_alone(tmp_path: Path) -> None:
    torch = cell(load(synthetic.make_run(tmp_path / "run")), "torch", "cnn-cifar10")
    assert torch.step is not None
    assert torch.items_per_second is not None
    assert torch.step.windows == 40
    assert torch.step.value == pytest.approx(0.1312, rel=0.03)
    assert torch.items_per_second.value == pytest.approx(64 / torch.step.value)
    assert torch.items_per_second.low == pytest.approx(64 / (torch.step.high or 0))


def test_a_step_time_is_the_geometric_mean_of_the_levels_of_its_repeats(tmp_path: Path) -> None:
    torch = cell(load(synthetic.make_run(tmp_path / "run", repeats=3)), "torch", "cnn-cifar10")
    assert torch.step is not None
    assert (torch.step.windows, torch.step.repeats) == (120, 3)
    assert torch.step.method.startswith("geometric mean of the repeats' levels")
    assert torch.step.value == pytest.approx(math.exp(sum(torch.log_levels) / 3))
    totals = [repeat.steady.step_seconds @ repeat.steady.steps / repeat.steady.steps.sum() for repeat in torch.repeats]
    assert torch.step.value == pytest.approx(math.prod(map(float, totals)) ** (1 / 3), rel=0.005)


def test_a_failed_cell_keeps_its_reason_and_is_not_ranked(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run"))
    failed = cell(data, "tensorflow", "gru-imdb")
    assert failed.status == "failed"
    assert failed.unranked.startswith("out-of-memory: the cell needed more")
    # It ended before it told its data, and stands all the same beside those it would have been compared with.
    (group,) = data.workloads[1].groups
    assert group.others == (failed,)


@pytest.mark.parametrize(("passed", "reason"), [(False, "parity failed"), (None, "parity was not checked")])
def test_the_fastest_cell_is_not_ranked_without_parity(tmp_path: Path, passed: bool | None, reason: str) -> None:
    data = load(synthetic.make_run(tmp_path / "run", changes={"parity_passed": passed}))
    (group,) = data.workloads[0].groups
    assert [entry.cell.framework for entry in group.ranked] == ["jax", "tensorflow"]
    assert [one.unranked for one in group.others] == [reason]


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "tf32"},
        {"preset": "full"},
        {"device_model": "Another Processor"},
        {"devices": 2},
        {"batch": 128},
        {"data_source": "files"},
    ],
)
def test_cells_that_differ_in_what_counts_are_never_set_beside_one_another(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    data = load(synthetic.make_run(tmp_path / "run", changes=changes))
    groups = data.workloads[0].groups
    assert len(groups) == 2
    assert sorted(len(group.cells) for group in groups) == [1, 2]


def test_a_short_run_has_no_total_and_a_full_one_has(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    rewrite(folder, "torch-2.13.0-cpu", preset="full", short=False)
    data = load(folder)
    assert cell(data, "jax", "cnn-cifar10").total_seconds is None
    total = cell(data, "torch", "cnn-cifar10").total_seconds
    assert total == pytest.approx(0.1312 * (14 + 3 * 43), rel=0.06)


def test_a_cell_of_which_one_repeat_failed_is_judged_by_the_others_and_says_so(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=2)
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    stored.write_repeat(folder, entry["id"], 2, {"cells": [synthetic.failed_row(entry)]})
    torch = cell(load(folder), "torch", "cnn-cifar10")
    assert torch.status == "failed"
    assert torch.reason.startswith("1 of 2 repeats: out-of-memory")
    assert (torch.unranked, torch.lost) == ("", "1 of 2 failed")
    assert torch.step is not None
    assert torch.step.windows == 40


def test_a_planned_cell_that_never_ended_is_missing_not_absent(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    stored.remove(folder, lambda row: row["cell_id"] == entry["id"])
    torch = cell(load(folder), "torch", "cnn-cifar10")
    assert torch.status == "missing"
    assert "--resume" in torch.unranked


def test_reused_repeats_are_marked(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run", reused=True))
    assert [one.framework for one in data.cells if one.reused] == ["torch"]


def test_what_was_left_out_is_kept_by_reason(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run"))
    assert sum(len(entry.rows) for entry in data.skipped) == 6
    assert all("no GPU on this machine" in entry.reason for entry in data.skipped)


def test_an_unsteady_cell_is_marked_and_its_ratio_spans_both_levels(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run"))
    jax = cell(data, "jax", "cnn-cifar10")
    assert [repeat for repeat, _ in jax.shifts] == [1]
    (entry,) = [one for one in data.workloads[0].groups[0].ranked if one.cell is jax]
    assert entry.ratio.low is not None
    assert entry.ratio.high is not None
    assert entry.ratio.high / entry.ratio.low > 1.15


def test_parity_shows_the_tensor_nearest_to_its_bound_of_each_quantity(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    bad = {"quantity": "gradient", "tensor": "conv1.w", "error": None, "bound": 1e-5, "passed": False, "variant": ""}
    rows["cells"][0].update(status="failed", error_kind="parity")
    stored.write_repeat(folder, entry["id"], 1, {**rows, "parity": [*rows["parity"], bad]})
    found = by_quantity(load(folder), "torch")
    assert list(found) == ["logits", "loss", "gradient", "parameter"]
    assert (found["gradient"].tensor, found["gradient"].error, found["gradient"].passed) == ("conv1.w", None, False)
    assert found["gradient"].tensors == 6


def by_quantity(data: Tables, framework: str) -> dict[str, ParityRow]:
    return {row.quantity: row for row in cell(data, framework, "cnn-cifar10").parity}


def test_parity_tells_what_was_checked_on_the_measured_adapter_and_nothing_of_older_runs(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    rows = synthetic.ended(entry, 1, 40)
    stored.write_repeat(folder, entry["id"], 1, {**rows, "parity": synthetic.due_rows("cnn-cifar10")})
    data = load(folder)
    found = by_quantity(data, "torch")
    assert (found["moved"].phase, found["logits"].phase) == ("proof", "parity")
    assert by_quantity(data, "jax")["logits"].phase == ""


def test_a_cell_whose_losses_were_not_compared_says_so_beside_its_figure(tmp_path: Path) -> None:
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")

    def noted(name: str, checked: list[dict[str, Any]], **columns: Any) -> list[str]:
        folder = synthetic.make_run(tmp_path / name)
        rows = synthetic.ended(entry, 1, 40)
        rows["cells"][0].update(columns)
        stored.write_repeat(folder, entry["id"], 1, {**rows, "parity": checked})
        return [words for words in cell(load(folder), "torch", "cnn-cifar10").caveats if "losses" in words]

    due = synthetic.due_rows("cnn-cifar10")
    left = [row for row in due if row["quantity"] != "learning"]
    ends = {"with this batch, seed and precision.": {}, "on real data.": {"data_source": "files"}}
    for at, (end, columns) in enumerate(ends.items()):
        (words,) = noted(f"run{at}", left, **columns)
        assert words.endswith(end)
    assert noted("compared", due) == noted("older", synthetic.ended(entry, 1, 40)["parity"]) == []


def test_accuracy_is_the_last_test_metric_of_each_repeat(tmp_path: Path) -> None:
    torch = cell(load(synthetic.make_run(tmp_path / "run", repeats=3)), "torch", "cnn-cifar10")
    assert torch.score is not None
    assert (torch.score.name, torch.score.repeats) == ("accuracy", 3)
    assert torch.score.low <= torch.score.value <= torch.score.high
    assert torch.score.value == pytest.approx(0.615, abs=0.04)
    assert torch.score.steps == 1 + 3 * 43


def test_whole_numbers_stay_whole_beside_missing_ones(tmp_path: Path) -> None:
    failed = cell(load(synthetic.make_run(tmp_path / "run")), "tensorflow", "gru-imdb")
    assert failed.repeats[0].row["exit_code"] == 137
    assert isinstance(failed.repeats[0].row["exit_code"], int)


def test_two_runs_of_one_cell_are_two_rows_that_name_their_run(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "monday"), synthetic.make_run(tmp_path / "tuesday"))
    (group,) = data.workloads[0].groups
    assert len(group.ranked) == 6
    assert len({entry.cell.label for entry in group.ranked}) == 6
    assert any(entry.cell.label.endswith("tuesday") for entry in group.ranked)


def test_the_command_measures_that_cell_again(tmp_path: Path) -> None:
    torch = cell(load(synthetic.make_run(tmp_path / "run")), "torch", "cnn-cifar10")
    words = torch.command.split()
    assert words[:2] == ["runner", "matrix"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options["--images"] == "torch-2.13.0-cpu"
    assert options["--workloads"] == "cnn-cifar10"
    assert options["--gpus"] == "none"
    assert options["--seed"] == "1"
    assert options["--precision"] == "fp32"


@pytest.mark.parametrize("repeats", [1, 3])
def test_one_repeat_names_what_was_seen_and_claims_no_ratio(tmp_path: Path, repeats: int) -> None:
    text = markdown_report.markdown(overview(load(synthetic.make_run(tmp_path / "run", repeats=repeats))))
    page = whole(render.page(load(tmp_path / "run")))
    for said in (text, page):
        assert ("2.13.0 is fastest" in said) == (repeats > 1)
        assert ("PyTorch 2.13.0 looks fastest (one run)" in said) == (repeats == 1)
        assert ("TensorFlow 2.21.0 looks 1.5" in said) == (repeats == 1)
    assert ("TensorFlow 2.21.0 takes 1.5" in text) == (repeats > 1)
    # A bar of an interval is a claim, too.
    assert bool(re.search(r'<i class="bar v\d+ l\d+ r\d+', page)) == (repeats > 1)


def test_compare_gives_a_cell_the_interval_that_the_report_gives_it(tmp_path: Path) -> None:
    cells = [cell for cell in load(synthetic.make_run(tmp_path / "run")).cells if cell.step]
    assert any(cell.shifts for cell in cells), "an unsteady cell has a wider interval"
    assert [Side((cell,)).step for cell in cells] == [cell.step for cell in cells]


def test_a_cell_that_was_measured_once_changes_nothing_in_what_is_said_of_the_others(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    torch = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")["id"]
    stored.remove(folder, lambda row: row["cell_id"] == torch and row["repeat"] > 1)
    (group, _) = load(folder).groups
    assert [entry.cell.framework for entry in group.ranked] == ["torch", "jax", "tensorflow"]
    first, *behind = sorted(group.ranked, key=lambda entry: not entry.is_first)
    assert (first.cell.framework, first.ratio.value) == ("jax", 1.0), (
        "the first has repeats, though another cell is faster"
    )
    assert [(entry.cell.framework, entry.once, entry.p is None) for entry in behind] == [
        ("torch", True, True),
        ("tensorflow", False, False),
    ]
    said = findings.findings(load(folder))[0]
    assert said.headline.startswith("JAX 0.10.2 is fastest of the 2 with repeats; PyTorch 2.13.0 looks 1.4")
    assert said.detail.endswith("Measured once: PyTorch 2.13.0 looks faster.")


def test_of_cells_with_repeats_one_is_fastest_beside_one_that_was_measured_once(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    jax = synthetic.cell("jax-0.10.2-cpu", "cnn-cifar10")["id"]
    stored.remove(folder, lambda row: row["cell_id"] == jax and row["repeat"] > 1)
    cnn, _ = findings.findings(load(folder))
    assert cnn.headline == "PyTorch 2.13.0 is fastest"
    assert "Measured once: JAX 0.10.2 takes more than 1.3" in cnn.detail


def test_a_winner_is_named_only_where_the_interval_says_so(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run", repeats=3))
    cnn, gru = findings.findings(data)
    assert cnn.headline == "PyTorch 2.13.0 is fastest"
    assert "95\u00a0% interval" in cnn.detail
    assert gru.headline == "JAX 0.10.2 and PyTorch 2.13.0 are equally fast within 5\u00a0%; TensorFlow 2.21.0 failed"


def test_cells_measured_with_different_bench_sources_are_said_to_be(tmp_path: Path) -> None:
    same = load(synthetic.make_run(tmp_path / "same"))
    mixed = load(synthetic.make_run(tmp_path / "mixed", changes={"core_sha256": "0" * 64}))
    said = [
        any("same version of the bench" in words for words in findings.findings(data)[0].caveats)
        for data in (same, mixed)
    ]
    assert said == [False, True]


def test_the_interval_of_one_repeat_has_room_for_its_windows_and_for_another_repeat(tmp_path: Path) -> None:
    # With few windows no shift of a level can be seen.
    few, many = (load(synthetic.make_run(tmp_path / f"run{at}", windows=at)).groups[0] for at in (6, 23))
    ends = []
    for group in (few, many):
        (entry,) = [one for one in group.ranked if one.cell.framework == "tensorflow"]
        assert entry.cell.step is not None
        assert entry.cell.own_width is not None
        assert entry.cell.step.half_width is not None
        assert entry.cell.step.half_width > 0.05 > entry.cell.own_width
        assert (entry.once, entry.verdict, entry.p) == (True, "open", None)
        assert entry.at_least is not None
        ends.append(entry.cell.own_width)
    assert ends[0] > ends[1]


def test_a_cell_with_too_few_windows_for_an_interval_is_not_ranked_and_says_so(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run", windows=4))
    answer = findings.findings(data)[0]
    assert answer.headline == "No answer"
    assert "(too few windows: 4, and a 95 % interval needs 6)" in " ".join(answer.caveats)
    assert {failure(cell)[1] for cell in answer.group.others if cell.unfit} == {"too few windows"}


def test_a_cell_too_noisy_to_rank_says_so_everywhere(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run", repeats=3, changes={"noise": 3.0}))
    noisy = cell(data, "torch", "cnn-cifar10")
    assert noisy.unranked == "too noisy: ± 300\u00a0%"
    assert noisy in data.workloads[0].groups[0].others
    assert "(too noisy: ± 300" in markdown_report.markdown(overview(data))
    assert 'not ranked<span class="sub reason">too noisy: ± 300' in whole(render.page(data))
    honest = load(synthetic.make_run(tmp_path / "honest", changes={"noise": 0.24}))
    assert not cell(honest, "torch", "cnn-cifar10").unranked


def test_a_single_repeat_whose_interval_is_wider_than_the_rule_is_not_ranked_and_leaves_the_answer_open(
    tmp_path: Path,
) -> None:
    torch = cell(load(synthetic.make_run(tmp_path / "run")), "torch", "cnn-cifar10")
    jax = cell(load(tmp_path / "run"), "jax", "cnn-cifar10")
    assert torch.step
    assert jax.step
    level = jax.step.value / 2
    shown = replace(torch.step, value=level, low=0.9 * level, high=3 * level)
    wide = replace(torch, step=shown, own_width=None)
    assert wide.too_noisy
    assert wide.unranked.startswith("too noisy: ")
    assert "one run from " in wide.unranked
    assert wide.comparable, "a comparison widens the interval itself"
    (group,) = groups_of([Comparable("g", jax.key, [wide, jax])], blocks_of([wide, jax]))
    assert [entry.cell.anchor for entry in group.ranked] == [jax.anchor]
    other = replace(
        jax, anchor="other", label="other", step=replace(jax.step, low=jax.step.high, value=2 * jax.step.value)
    )
    (three,) = groups_of([Comparable("g", jax.key, [wide, jax, other])], blocks_of([wide, jax, other]))
    assert standing(three).rivals == (Rival(wide, pytest.approx(2.0), faster=False),)


def test_an_interval_of_two_repeats_far_apart_is_said_in_words_and_kept_in_the_data(tmp_path: Path) -> None:
    data = load(synthetic.make_run(tmp_path / "run", repeats=2, drift=2.0))
    step = cell(data, "torch", "cnn-cifar10").step
    assert step is not None
    assert step.high is not None
    assert step.high > 3 * step.value
    assert whole(render.page(data)).count('<span class="sub">two repeats: too few to tell</span>') == 2 * 5
    assert "two repeats: too few to tell" in markdown_report.markdown(overview(data))
    near = load(synthetic.make_run(tmp_path / "near", repeats=2))
    assert "two repeats: too few to tell" not in whole(render.page(near))


def test_what_the_plan_left_out_is_named_with_its_framework(tmp_path: Path) -> None:
    rows = ({"image": "jax-0.10.2-cpu", "framework": "keras_jax"}, {"image": "jax-0.10.2-cpu", "framework": "jax"})
    assert Skipped("no adapter", rows).names == ("JAX 0.10.2", "Keras on JAX 0.10.2")


def test_a_run_where_nothing_ended_has_no_answer(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    synthetic.unrun(folder)
    data = load(folder)
    assert {one.status for one in data.cells} == {"missing"}
    assert {finding.headline for finding in findings.findings(data)} == {"Not measured yet"}


def test_a_gpu_cell_names_its_devices_in_the_command(tmp_path: Path) -> None:
    gpus = {"device_kind": "cuda", "device_model": "NVIDIA H200", "devices": 2, "device_uuids": ["GPU-a", "GPU-b"]}
    data = load(synthetic.make_run(tmp_path / "run", changes=gpus))
    torch = cell(data, "torch", "cnn-cifar10")
    assert torch.key.device == "2 × NVIDIA H200"
    assert "--gpus GPU-a,GPU-b" in torch.command


def test_a_run_speaks_for_itself_only(tmp_path: Path) -> None:
    mine = synthetic.make_run(tmp_path / "mine", repeats=2)
    theirs = synthetic.make_run(tmp_path / "theirs", repeats=2)
    shutil.rmtree(theirs / "tables")
    shutil.copytree(mine / "tables", theirs / "tables")
    with pytest.raises(StoreError, match=r"theirs: its tables were not made here"):
        tables.load([mine, theirs])


def test_a_copy_of_a_run_is_not_a_second_run(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run", repeats=2)
    shutil.copytree(run, tmp_path / "run.bak")
    assert len(tables.load([tmp_path / "run.bak"]).cells) == len(tables.load([run]).cells)
    with pytest.raises(StoreError, match=r"run and .*run\.bak hold the same run, run; name or keep one of them"):
        tables.load([run, tmp_path / "run.bak"])
