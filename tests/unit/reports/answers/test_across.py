"""Versions, precisions and devices set against one another, over stored runs whose levels are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reports.page.render
from reports.answers import across, export
from reports.answers.across import Across
from reports.answers.overview import overview
from reports.data import curves, tables
from reports.data.model import Curve, Group, Tables
from reports.page import markdown_report
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import whole

GPU = "NVIDIA H200"
# image: CUDA, cuDNN, framework, factor on the level
LADDER = {
    "torch-2.8.0-cu124": ("12.4", "9.1.0", "2.8.0", 1.30),
    "torch-2.9.1-cu126": ("12.6", "9.5.1", "2.9.1", 1.08),
    "torch-2.9.1-cu128-old": ("12.8", "9.5.1", "2.9.1", 1.00),
    "torch-2.9.1-cu128": ("12.8", "9.10.2", "2.9.1", 1.00),
}


def add(folder: Path, image: str, factor: float, draw: int, **told: Any) -> None:
    """Store three repeats of a CNN cell of another image, precision or device in a run that is already there."""
    columns = {
        "image": image,
        **{name: told[name] for name in ("precision", "device_model", "device_kind") if name in told},
    }
    entry = {**synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10"), **columns}
    cell_id = synthetic.digest(json.dumps(entry, sort_keys=True))[:16]
    for repeat in (1, 2, 3):
        rows = synthetic.ended({**entry, "image": "torch-2.13.0-cpu"}, repeat, 40, factor, draw)
        rows["cells"][0].update({**columns, **told})
        stored.write_repeat(folder, cell_id, repeat, rows)


def ladder(folder: Path) -> Path:
    synthetic.make_run(folder, repeats=3)
    for draw, (image, (cuda, cudnn, version, factor)) in enumerate(LADDER.items(), start=1):
        told = {"cuda_version": cuda, "cudnn_version": cudnn, "framework_version": version}
        add(folder, image, factor, draw, device_kind="cuda", device_model=GPU, **told)
    return folder


def group(data: Tables, device: str) -> Group:
    (found,) = [one for one in data.groups if one.key.device_model == device and one.key.workload == "cnn-cifar10"]
    return found


def effects(found: Across | None) -> dict[str, tuple[str, bool]]:
    assert found is not None
    return {effect.of: (effect.contrast.verdict, effect.apart) for effect in found.effects}


def test_the_effects_of_cuda_and_cudnn_are_told_apart_where_the_cells_allow_it(tmp_path: Path) -> None:
    data = tables.load([ladder(tmp_path / "run")])
    found = effects(across.versions(group(data, GPU)))
    assert found == {
        "CUDA 12.6 → 12.8, with cuDNN 9.5.1 and PyTorch 2.9.1": ("faster", True),
        "cuDNN 9.5.1 → 9.10.2, with CUDA 12.8 and PyTorch 2.9.1": ("same", True),
        "CUDA 12.4 → 12.6, cuDNN 9.1.0 → 9.5.1 and PyTorch 2.8.0 → 2.9.1": ("faster", False),
    }


def test_a_sentence_is_said_only_of_what_is_real_and_told_apart(tmp_path: Path) -> None:
    data = tables.load([ladder(tmp_path / "run")])
    (said,) = overview(data).changes
    assert said.startswith(
        "CNN on CIFAR-10, training, NVIDIA H200, fp32, quick: CUDA 12.6 → 12.8, with cuDNN 9.5.1 and PyTorch 2.9.1"
    )
    assert " times as fast" in said


def test_one_version_has_no_ladder(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2)])
    assert [across.versions(one) for one in data.groups] == [None, None]
    assert overview(data).changes == ()


def test_versions_are_ordered_as_numbers() -> None:
    rungs = [("12.10", "9", "2.9"), ("12.9", "9", "2.9"), ("12.9", "9", "2.10")]
    assert sorted(rungs, key=across.version_key) == [rungs[1], rungs[2], rungs[0]]


@pytest.mark.parametrize("odd", ["2.²", "9" * 5000, "", "٣", "-"])
def test_a_version_that_is_no_number_has_a_place_all_the_same(odd: str) -> None:
    rungs = [("12.9", "9", "2.9"), (odd, odd, odd)]
    assert len(sorted(rungs, key=across.version_key)) == 2


def test_precisions_are_held_against_fp32_in_the_same_image(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    add(folder, "torch-2.13.0-cpu", 0.6, 1, precision="amp-bf16")
    data = tables.load([folder])
    (found,) = across.precisions(data.workloads[0])
    assert effects(found) == {"fp32 → amp-bf16": ("faster", True)}
    # and they are never ranked as the same thing
    for group in data.workloads[0].groups:
        assert {entry.cell.key.precision for entry in group.ranked} == {group.key.precision}
    assert {group.key.precision for group in data.workloads[0].groups} == {"fp32", "amp-bf16"}
    assert across.precisions(data.workloads[1]) == ()


def test_devices_are_held_against_the_one_that_most_cells_ran_on(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    add(folder, "torch-2.13.0-cpu", 0.5, 1, device_model="Another Processor")
    (found,) = across.devices(tables.load([folder]).workloads[0])
    assert list(effects(found)) == [f"{synthetic.CPU} → Another Processor"]
    ratio = found.effects[0].contrast.ratio
    assert ratio is not None
    assert ratio.value == pytest.approx(0.5, rel=0.03)


def test_time_to_a_loss_is_to_one_that_every_cell_reached(tmp_path: Path) -> None:
    quick = tables.load([synthetic.make_run(tmp_path / "quick", repeats=2)])
    assert curves.time_to(quick.groups[0], quick.workloads[0]) is None, "a quick run is too short to learn"
    data = tables.load([synthetic.make_run(tmp_path / "run", repeats=2, everywhere={"preset": "full"})])
    found = curves.time_to(data.groups[0], data.workloads[0])
    assert found is not None
    assert (found.name, found.split) == ("loss", "train")
    assert all(row.seconds is not None and row.seconds > 0 for row in found.rows)
    # All follow the same curve over steps, so the faster step is there first.
    assert next(row.cell.framework for row in sorted(found.rows, key=lambda row: row.seconds or 0)) == "torch"


def test_a_single_lucky_batch_is_no_level_reached() -> None:
    values = [3.0, 3.0, 3.0, 0.1, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]
    steps = list(range(len(values)))
    curve = Curve("loss", "train", 1, *(np.array(one, dtype=float) for one in (steps, steps, values)))
    assert curves.first(curve, 1.0, falling=True) == (7.0, 7.0)  # not 3, where one batch alone was
    assert curves.first(curve, 0.05, falling=True) is None
    # The median of fewer than five windows is that of the first batches: an untrained network has it.
    assert curves.first(curve, 3.0, falling=True) == (4.0, 4.0)


def test_the_page_shows_the_ladder_costs_and_times(tmp_path: Path) -> None:
    reports.page.render.render([ladder(tmp_path / "run")], tmp_path / "report.html")
    page = whole(tmp_path / "report.html")
    for words in ("Across versions on this device", "Host memory"):
        assert words in page, words
    assert "Joules" not in page
    assert 'id="history"' not in page


def test_several_runs_have_a_section_on_what_moved(tmp_path: Path) -> None:
    slow = {("torch-2.13.0-cpu", "cnn-cifar10"): 1.1}
    runs = [
        synthetic.make_run(
            tmp_path / f"day{day}",
            repeats=2,
            draw=day,
            slower=slow if day > 4 else None,
            manifest={"created": f"2026-11-2{day}T00:00:00+00:00"},
        )
        for day in range(8)
    ]
    reports.page.render.render(runs, tmp_path / "report.html")
    page = whole(tmp_path / "report.html")
    section = page[page.index('id="history"') : page.index('id="not-run"')]
    assert "5 comparisons over 8 runs: 1 changed" in section
    assert "slower: takes" in section
    assert "nothing recorded changed" in section
    assert "since day5" in section
    assert "5 runs before, 3 since" in section
    reports.page.render.render(runs[:3], tmp_path / "report.html")
    page = whole(tmp_path / "report.html")
    assert "3 runs with the same recorded facts; 4 or more are needed" in page


def test_energy_and_throttling_are_shown_where_the_store_has_them(tmp_path: Path) -> None:
    row = {"joules_per_item": 0.25, "mean_power_watts": 612.0, "throttled": True, "throttled_by": ["heat"]}
    assert tables._costs([row, {**row, "joules_per_item": 0.35}]) == {"joules_per_item": 0.3, "mean_power_watts": 612.0}
    assert tables._throttled([row, {}]) == ("heat",)
    assert tables._throttled([{**row, "throttled": False}]) == ()


JOB = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "lab/cells", "GITHUB_RUN_ID": "7"}


def test_markdown_longer_than_a_comment_ends_after_a_whole_row_and_says_how_much_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*JOB, "CI_JOB_URL"):
        monkeypatch.delenv(name, raising=False)
    shown = overview(tables.load([synthetic.make_run(tmp_path / "run")]))
    everything = markdown_report.markdown(shown)
    monkeypatch.setattr(export, "_MOST_OF_A_COMMENT", len(everything.encode()) - 1)
    cut = markdown_report.markdown(shown)
    assert len(cut.encode()) < len(everything.encode())
    *kept, _, said = cut.splitlines()
    assert everything.splitlines()[: len(kept)] == kept
    left = len(everything.splitlines()) - len(kept)
    assert said == f"{left} more lines do not fit a comment of GitHub: the text, the CSV and the page have all of them."
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    linked = markdown_report.markdown(shown).splitlines()[-1]
    assert "GitHub: [this job](https://github.com/lab/cells/actions/runs/7), the text" in linked
    monkeypatch.setenv("GITHUB_REPOSITORY", "lab) <b>")
    assert "[" not in markdown_report.markdown(shown).splitlines()[-1]
    fenced = export.in_a_comment("```text\n" + "a line\n" * len(everything))
    *kept, end, _, said = fenced.splitlines()
    assert end == "```", "a block of code is closed"
    assert said.startswith(f"{len(everything) - kept.count('a line')} more lines do not fit")


def test_the_summary_in_markdown_has_the_answers_and_a_table_for_each_group(tmp_path: Path) -> None:
    text = markdown_report.markdown(overview(tables.load([ladder(tmp_path / "run")])))
    # The levels are those of the fixture: JAX takes 1.33 times as long, two images are alike, and in the GRU 0.5 % lie between two.
    headlines = [line.partition(".**")[0] for line in text.splitlines() if line.startswith("**")]
    assert "**PyTorch 2.13.0 is fastest" in headlines
    assert "**torch-2.9.1-cu128-old and PyTorch 2.9.1 · CUDA 12.8 are equally fast within 5 %" in headlines
    assert "**JAX 0.10.2 and PyTorch 2.13.0 are equally fast within 5 %; TensorFlow 2.21.0 failed" in headlines
    assert len(headlines) == 3
    assert "| PyTorch 2.9.1 · CUDA 12.8 \\[1\\] |" in text, "its GPU has no telemetry, which a note says"
    assert "- CNN on CIFAR-10, training, NVIDIA H200, fp32, quick: CUDA 12.6 → 12.8" in text
    assert "Not ranked: TensorFlow 2.21.0 (failed)." in text


def test_markup_in_the_summary_stays_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>|`x` [a](javascript:1) \u202e\x1b[31m"
    folder = synthetic.make_run(tmp_path / "run", changes={"image": hostile, "device_model": hostile})
    text = markdown_report.markdown(overview(tables.load([folder])))
    assert "<script>" not in text
    assert "](javascript" not in text.replace("\\](javascript", "").replace("\\]", "")
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_loss_that_hardly_fell_is_no_level_to_time(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    stored.change(folder, "metrics", lambda row: row | {"value": 2.3 if row["name"] == "loss" else row["value"]})
    data = tables.load([folder])
    assert curves.time_to(data.groups[0], data.workloads[0]) is None
