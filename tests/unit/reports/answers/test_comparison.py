"""`runner compare`, through the command and stored runs: what is paired with what, the verdicts, and every format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from reports.answers import comparison, plain
from reports.answers import left as of_runs
from reports.answers.overview import overview
from reports.answers.run_history import history
from reports.data import tables
from reports.page.assembly import page_of
from reports.wording import number
from runner.cli.main import app
from runner.results.store import TABLES
from tests.fixtures import stored, synthetic

SLOW = {("torch-2.13.0-cpu", "cnn-cifar10"): 1.12}
HOSTILE = "torch|<script>alert(1)</script>\n`x` \x1b[31m\u202e"


def ask(out: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["compare", *words, "--out", str(out)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    synthetic.make_run(out / "monday", repeats=4)
    synthetic.make_run(out / "tuesday", repeats=4, draw=1, slower=SLOW)
    return out


def test_two_runs_are_compared_cell_by_cell_and_the_slower_one_ends_with_1(runs: Path) -> None:
    result = ask(runs, "monday", "tuesday", "--format", "json")
    found = json.loads(result.stdout)
    verdicts = {(row["framework"], row["workload"]): row["verdict"] for row in found["rows"]}
    assert verdicts == {
        ("torch", "cnn-cifar10"): "slower",
        ("torch", "gru-imdb"): "open",
        ("tensorflow", "cnn-cifar10"): "open",
        ("jax", "cnn-cifar10"): "open",
        ("jax", "gru-imdb"): "open",
    }
    # Two runs of a CPU are assumed to differ by more than the margin.
    assert found["common_shift"]["verdict"] == "open"
    assert (found["by"], found["correction"], found["exit_code"]) == ("run", "Holm", 1)
    assert result.exit_code == 1
    (torch,) = [row for row in found["rows"] if row["verdict"] == "slower"]
    assert torch["ratio_low"] < 1.12 < torch["ratio_high"]
    assert torch["p_holm"] < 0.05
    # What failed on both sides is no regression, and is not passed over.
    assert [(one["image"], one["lost"]) for one in found["unpaired"]] == [("tensorflow-2.21.0-cpu", False)]


@pytest.mark.slow
def test_what_other_runs_show_makes_two_of_them_the_same_or_faster_and_their_absence_leaves_them_open(
    tmp_path: Path,
) -> None:
    def night(out: Path, name: str, draw: int, slower: float = 1.0) -> None:
        levels = dict.fromkeys(synthetic.LEVELS, slower)
        synthetic.forget(synthetic.make_run(out / name, repeats=3, draw=draw, slower=levels), *synthetic.UNSTEADY)

    for out in (tmp_path / "two", tmp_path / "four"):
        for day in range(1, 4 if out.name == "four" else 2):
            night(out, f"d{day}", day)
        night(out, "d4", 4)
    result = ask(tmp_path / "two", "d1", "d4")
    assert result.exit_code == 3
    assert "2 runs" not in result.stdout
    assert "two runs are assumed to differ by up to 5.7" in result.stdout
    result = ask(tmp_path / "four", "d1", "d4", "--format", "json")
    told = json.loads(result.stdout)
    assert (told["common_shift"]["verdict"], told["common_shift"]["sessions_from_runs"]) == ("same", 4)
    assert {row["verdict"] for row in told["rows"]} == {"same"}
    assert result.exit_code == 0
    night(tmp_path / "four", "d5", 5, 0.9)
    result = ask(tmp_path / "four", "d4", "d5")
    assert "All cells together: faster: is 1.1" in result.stdout
    assert result.exit_code == 0
    # A third run that cannot be read takes nothing away but what it shows.
    (tmp_path / "four" / "d2" / "run.json").write_text("[]")
    assert ask(tmp_path / "four", "d4", "d5").exit_code == 0
    (tmp_path / "four" / "d4" / "run.json").write_text("[]")
    assert "d4/run.json" in ask(tmp_path / "four", "d4", "d5").stderr


def test_mixed_precision_without_parity_at_fp32_is_compared_with_its_own_framework_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = synthetic.make_run(tmp_path / name)
        stored.change(folder, "cells", lambda row: {**row, "precision": "amp-bf16"})
    of_two = ask(tmp_path, "torch", "jax", "--runs", "a")
    assert of_two.exit_code == 3
    assert (
        "no cell is compared. Not compared: 2 too noisy, with too few windows, or without parity at fp32."
        in " ".join(of_two.stdout.split())
    )
    of_one = ask(tmp_path, "a", "b").stdout
    assert "parity at fp32" not in of_one
    assert "cells compared" in of_one


@pytest.mark.parametrize("how", ["text", "markdown"])
def test_two_repeats_that_lie_a_decade_apart_have_no_interval_in_figures(tmp_path: Path, how: str) -> None:
    synthetic.make_run(tmp_path / "a", repeats=2)
    synthetic.make_run(tmp_path / "b", repeats=2, draw=3, drift=30.0)
    said = ask(tmp_path, "a", "b", "--format", how).stdout
    assert said.count("two repeats: too few to tell") >= 5
    assert not re.search(r"\d to \d+[ \u2009]\d{3}\b", said)


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten daily runs, whose four cells all take 7 % longer from the sixth on."""
    out = tmp_path_factory.mktemp("daily")
    for day in range(1, 11):
        run_of_a_day(out, day)
    return out


def run_of_a_day(out: Path, day: int) -> None:
    levels = dict.fromkeys(synthetic.LEVELS, 1.07 if day > 5 else 1.0)
    manifest = {"created": f"2026-11-{day:02d}T23:00:00+00:00"}
    folder = synthetic.make_run(out / f"d{day:02d}", repeats=3, draw=day, slower=levels, manifest=manifest)
    for place in (synthetic.UNSTEADY, synthetic.FAILED):
        synthetic.forget(folder, *place)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["text", "markdown", "json", "csv"])
def test_ten_daily_runs_that_become_slower_are_told_alike_by_compare_and_history(daily: Path, how: str) -> None:
    among = ask(daily, "d05", "d06", "--format", how)
    history = CliRunner().invoke(app, ["history", "--out", str(daily), "--format", how])
    assert among.exit_code == 1
    assert history.exit_code == 1
    if how == "json":
        told = json.loads(among.stdout)
        assert (told["common_shift"]["verdict"], told["common_shift"]["sessions_from_runs"]) == ("slower", 10)
        assert told["common_shift"]["ratio"] == pytest.approx(1.07, abs=0.01)
        assert {row["verdict"] for row in told["rows"]} == {"slower"}
        assert {(row["verdict"], row["kind"]) for row in json.loads(history.stdout)["rows"]} == {("slower", "step")}
    elif how == "csv":
        rows = list(csv.DictReader(io.StringIO(among.stdout)))
        assert [row["row"] for row in rows] == ["all cells together", *["cell"] * 4]
        assert (rows[0]["image"], rows[0]["verdict"]) == ("", "slower")
    else:
        said = among.stdout.replace("\u00a0", " ")
        assert re.search(r"all cells together .*1\.07\d .* slower: takes 1\.07\d* times as long", said)
        # Of one cell the interval begins just below 5 %.
        counts = "3 slower and 1 slower, perhaps by less than 5 %"
        assert f"4 cells compared: {counts}. All cells together: slower: takes 1.07" in said
        assert "4 of 4 cells became slower since d06." in history.stdout


@pytest.mark.slow
def test_what_moved_between_the_runs_of_a_report_is_a_sentence(daily: Path) -> None:
    (sentence,) = history(tables.load([daily / "d05", daily / "d06"])).notes
    assert sentence.replace("\u00a0", " ").startswith("All 4 cells moved together: a step takes 1.07")
    assert "That is slower" in sentence
    # What is said of all cells is not said of each.
    (sentence,) = history(tables.load(sorted(daily.iterdir()))).notes
    assert sentence.startswith("4 of 4 cells became slower since d06.")
    assert overview(tables.load([daily / "d05"])).notes == ()
    assert history(tables.load([daily / "d04", daily / "d05"])).notes == ()


@pytest.mark.slow
def test_of_a_pair_alone_in_its_folder_what_is_slower_for_all_never_ends_with_0(tmp_path: Path) -> None:
    for day in (5, 6):
        run_of_a_day(tmp_path, day)
    result = ask(tmp_path, "d05", "d06")
    assert result.exit_code == 1
    said = result.stdout.replace("\u00a0", " ")
    assert re.search(r"all cells together .*slower, perhaps by less than 5 %: takes 1\.07\d* times as long", said)
    # Nothing shows what a session does to one cell alone, so a cell may be open. None is the same.
    assert re.search(
        r"4 cells compared: (\d slower, perhaps by less than 5 %( and )?)?(\d open, since the data do not tell)?\.",
        said,
    )
    assert "measure two more runs of each side into this folder" in said


def test_a_slower_cell_within_the_margin_fails_nothing(runs: Path) -> None:
    result = ask(runs, "monday", "tuesday", "--margin", "20")
    assert "slower by less than 20" in result.stdout
    assert "1 changed by less than 20" in result.stdout
    assert ask(runs, "monday", "tuesday").exit_code == 1
    assert result.exit_code != 1


def test_a_cell_that_no_longer_runs_ends_with_1(tmp_path: Path) -> None:
    synthetic.make_run(tmp_path / "a", repeats=3)
    folder = synthetic.make_run(tmp_path / "b", repeats=3, draw=1)
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    for repeat in (1, 2, 3):
        stored.write_repeat(folder, entry["id"], repeat, {"cells": [synthetic.failed_row(entry)]})
    result = ask(tmp_path, "a", "b")
    assert result.exit_code == 1
    assert "not compared: PyTorch 2.13.0, cnn-cifar10: in b: 3 of 3 repeats: out-of-memory" in result.stdout
    assert "1 no longer measured" in result.stdout


def test_two_images_of_different_frameworks_are_compared_by_workload(runs: Path) -> None:
    found = json.loads(ask(runs, "torch-2.13.0-cpu", "jax-0.10.2-cpu", "--runs", "monday", "--format", "json").stdout)
    assert found["by"] == "image"
    assert [(row["image"], row["workload"]) for row in found["rows"]] == [
        ("jax-0.10.2-cpu", "cnn-cifar10"),
        ("jax-0.10.2-cpu", "gru-imdb"),
    ]
    assert all("framework 2.13.0 → 0.10.2" in row["differences"] for row in found["rows"])


def test_two_frameworks_are_compared_by_their_names_and_a_row_says_what_both_share(runs: Path) -> None:
    for words in (("torch", "jax"), ("PyTorch", "JAX")):
        result = ask(runs, *words, "--runs", "monday")
        assert "framework PyTorch and JAX" in result.stdout
        assert "lock " not in result.stdout
        assert "code " not in result.stdout
        assert result.stdout.count("cnn-cifar10") == 1, result.stdout
    both = ask(runs, "torch", "jax", "--runs", "monday", "--by", "framework", "--format", "json")
    assert json.loads(both.stdout)["by"] == "framework"


def test_a_framework_with_several_images_asks_for_the_image(tmp_path: Path) -> None:
    synthetic.make_run(tmp_path / "a", repeats=2, changes={"image": "torch-2.9.1-cpu"})
    result = ask(tmp_path, "torch", "jax")
    assert result.exit_code == 2
    assert (
        "'torch' was measured in several images: torch-2.13.0-cpu and torch-2.9.1-cpu; name an image" in result.stderr
    )


def test_an_image_of_several_frameworks_is_compared_by_the_name_that_the_refusal_proposes(tmp_path: Path) -> None:
    # An image of JAX and TensorFlow that is named after neither.
    site = synthetic.make_run(tmp_path / "a", repeats=2, everywhere={"image": "site-1-cpu"})
    for workload in ("cnn-cifar10", "gru-imdb"):
        synthetic.forget(site, "torch-2.13.0-cpu", workload)
    synthetic.make_run(tmp_path / "b", repeats=2)
    refused = ask(tmp_path, "torch-2.13.0-cpu", "site-1-cpu", "--runs", "a,b")
    assert refused.exit_code == 2
    assert "site-1-cpu has cells of jax and tensorflow at one workload; name the framework" in refused.stderr
    proposed = refused.stderr.partition("compare ")[2].partition("`")[0].split()
    assert proposed == ["torch-2.13.0-cpu", "site-1-cpu:jax"]
    found = json.loads(ask(tmp_path, *proposed, "--runs", "a,b", "--format", "json").stdout)
    assert {(row["framework"], row["workload"]) for row in found["rows"]} == {
        ("jax", "cnn-cifar10"),
        ("jax", "gru-imdb"),
    }


def test_the_command_that_goes_on_with_a_run_names_the_folder_that_it_was_started_in(tmp_path: Path) -> None:
    manifest = {"repeats": 3, "options": {"out": "/big disk/runs"}}
    synthetic.unrun(synthetic.make_run(tmp_path / "begun", manifest=manifest), ("jax-0.10.2-cpu", "cnn-cifar10"))
    data = tables.load([tmp_path / "begun"])
    (left,) = of_runs.left(data.cells)
    command = "runner matrix --resume begun --results '/big disk/runs'"
    assert left.command == command
    assert page_of(overview(data)).go_on == (command,)
    assert (
        f"not compared: 2 cells are not yet run ({command}): "
        in ask(tmp_path, "torch-2.13.0-cpu", "jax-0.10.2-cpu").stdout
    )


def test_what_an_unfinished_run_lacks_is_a_line_with_the_command_that_measures_it(tmp_path: Path) -> None:
    places = [("torch-2.13.0-cpu", "cnn-cifar10"), ("torch-2.13.0-cpu", "gru-imdb"), ("jax-0.10.2-cpu", "cnn-cifar10")]
    synthetic.unrun(synthetic.make_run(tmp_path / "begun", manifest={"repeats": 3}), *places)
    result = ask(tmp_path, "torch-2.13.0-cpu", "jax-0.10.2-cpu")
    assert re.search(r"open: measured once, .*; go on with runner matrix --resume begun\n", result.stdout)
    assert "--repeats 3" not in result.stdout
    lines = [line for line in result.stdout.splitlines() if line.startswith("not compared")]
    (line,) = lines
    assert line.startswith("not compared: 1 cell is not yet run (runner matrix --resume begun): gru-imdb, ")
    assert line.endswith(": jax-0.10.2-cpu")
    (more,) = [line for line in result.stdout.splitlines() if line.startswith("to tell more")]
    (left,) = of_runs.left(tables.load([tmp_path / "begun"]).cells)
    own = "4 repeats of these cells, and the rest of the run: "
    assert more == f"to tell more: `runner matrix --resume begun` ({own}{left.count}{left.time})"
    (alone,) = [line for line in result.stdout.splitlines() if line.startswith("to measure only these cells")]
    assert alone.endswith(
        "`runner matrix --images jax-0.10.2-cpu,torch-2.13.0-cpu --frameworks jax,torch --workloads cnn-cifar10 "
        "--modes default --gpus none`"
    )
    assert f"{left.repeats} repeats not yet run (3 cells without any repeat), about" in more
    assert result.exit_code == 3, "what is not yet run is not lost"
    refused = ask(tmp_path, "x", "y").stderr
    assert "torch-2.13.0-cpu" in refused
    assert "tensorflow" not in refused, "only what was measured can be compared"


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"repeats": 15, "seconds": 10_800.0}, ", about 3.0 h"),
        # The runner was killed: five repeats ended after it stored this.
        ({"repeats": 20, "seconds": 10_800.0}, ", about 2.2 h"),
        ({"repeats": 0, "seconds": 0.0}, ", about 8 min"),
        (None, ", about 8 min"),
    ],
)
def test_what_is_left_takes_as_long_as_the_runner_says(
    tmp_path: Path, stored: Mapping[str, Any] | None, words: str
) -> None:
    places = [("torch-2.13.0-cpu", "cnn-cifar10"), ("torch-2.13.0-cpu", "gru-imdb"), ("jax-0.10.2-cpu", "cnn-cifar10")]
    manifest = {"repeats": 3} | ({"left": stored} if stored else {})
    synthetic.unrun(synthetic.make_run(tmp_path / "begun", manifest=manifest), *places)
    data = tables.load([tmp_path / "begun"])
    (left,) = of_runs.left(data.cells, data.runs)
    assert (left.repeats, left.time) == (15, words)
    shown = " ".join(line for section in plain.sections(data) for line in section.below)
    assert f"{left.count}{words}" in shown
    assert f"{left.count}{words})" in ask(tmp_path, "torch-2.13.0-cpu", "jax-0.10.2-cpu").stdout


def gpu_run(folder: Path, model: str, cuda: str, draw: int, **more: Any) -> Path:
    """A synthetic run of PyTorch and the others on a made-up GPU."""
    told = {"device_kind": "cuda", "device_model": model, "cuda_version": cuda, "device_uuids": [f"GPU-{model[-4:]}"]}
    return synthetic.make_run(folder, repeats=3, draw=draw, everywhere={**told, **more})


def test_of_an_unsteady_cell_that_was_measured_once_compare_says_no_more_than_the_report(tmp_path: Path) -> None:
    data = tables.load([synthetic.make_run(tmp_path / "run")])
    (entry,) = [one for one in data.groups[0].ranked if one.cell.framework == "jax"]
    assert entry.cell.shifts
    rows = comparison.comparison(data, "torch-2.13.0-cpu", "jax-0.10.2-cpu").rows
    (row,) = [row for row in rows if row.cell.anchor == entry.cell.anchor]
    assert row.ratio == entry.ratio
    assert entry.at_least == pytest.approx(entry.ratio.low)
    assert entry.ratio.low is not None
    assert entry.ratio.low <= min(entry.cell.levels) / data.groups[0].first.cell.step.value
    assert f"it looks {number(entry.ratio.value)} times as long" in row.reason


def test_two_gpus_are_compared_by_a_part_of_their_names_or_their_uuid(tmp_path: Path) -> None:
    gpu_run(tmp_path / "a", "NVIDIA H100", "12.8", 1)
    gpu_run(tmp_path / "b", "NVIDIA H200", "12.8", 2)
    for words in (("h100", "h200"), ("GPU-H100", "GPU-H200")):
        found = json.loads(ask(tmp_path, *words, "--runs", "a,b", "--format", "json").stdout)
        assert (found["by"], len(found["rows"])) == ("gpu", 5)
        assert {row["device_model"] for row in found["rows"]} == {"NVIDIA H200"}
    wrong = ask(tmp_path, "nvidia", "h200", "--runs", "a,b")
    assert wrong.exit_code == 2
    assert "part of several devices' names: NVIDIA H100 and NVIDIA H200" in wrong.stderr


def test_two_cuda_versions_are_compared_within_one_version_of_the_framework(tmp_path: Path) -> None:
    gpu_run(tmp_path / "a", "NVIDIA H200", "12.6", 1, image="torch-2.9.1-cu126", framework="torch")
    gpu_run(tmp_path / "b", "NVIDIA H200", "12.8", 2, image="torch-2.9.1-cu128", framework="torch")
    found = json.loads(ask(tmp_path, "12.6", "12.8", "--runs", "a,b", "--format", "json").stdout)
    assert found["by"] == "cuda"
    assert len(found["rows"]) == 5
    assert all("CUDA 12.6 → 12.8" in row["differences"] for row in found["rows"])


def test_csv_and_markdown_hold_every_row(runs: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(ask(runs, "monday", "tuesday", "--format", "csv").stdout)))
    # All cells together, the five, and the one that failed in both runs.
    assert [row["verdict"] for row in rows].count("not compared") == 1
    assert len(rows) == 1 + 5 + 1
    assert float(rows[1]["ratio"]) == pytest.approx(1.12, abs=0.03)
    lines = ask(runs, "monday", "tuesday", "--format", "markdown").stdout.splitlines()
    assert sum(line.startswith("| ") for line in lines) == 2 + 1 + 5
    said = lines[0].replace("\u00a0", " ")
    assert said.startswith("**tuesday against monday: 5 cells compared: ")
    assert said.endswith(" and 4 open, since the data do not tell. All cells together: open.**")
    assert len({line.count(" | ") for line in lines if line.startswith("| ")}) == 1


def test_a_hostile_name_stays_text_in_every_format(tmp_path: Path) -> None:
    for name, draw in (("a", 1), ("b", 2)):
        synthetic.make_run(tmp_path / name, repeats=2, draw=draw, changes={"image": HOSTILE, "framework": "=1+1"})
    for how in ("markdown", "csv", "json", "text"):
        text = ask(tmp_path, "a", "b", "--format", how).stdout
        assert "\x1b" not in text
        assert "\u202e" not in text
    found = ask(tmp_path, "a", "b", "--format", "markdown").stdout
    assert "<script" not in found
    assert "torch\\|&lt;script\\>" in found
    rows = list(csv.DictReader(io.StringIO(ask(tmp_path, "a", "b", "--format", "csv").stdout)))
    assert {row["framework"] for row in rows} >= {"'=1+1"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x", "y"), "'x' and 'y' do not name two things of one kind; these runs measured run: "),
        (("monday", "tuesday", "--by", "gpus"), "'gpus' is not one of 'run', 'image', 'framework', 'gpu', 'cuda'"),
        (("monday", "tuesday", "--format", "yaml"), "'yaml' is not one of 'text', 'json', 'markdown', 'csv'"),
        (("monday", "monday"), "both sides are 'monday'"),
        (("monday", "wednesday"), "monday is a run, and wednesday is none; name another run. The newest below "),
        (("torch", "tuesday"), "tuesday is a run, and torch is none"),
        (("monday", "tuesday", "--by", "image"), "these runs measured image: "),
        (("x", "y"), "; --runs names other runs"),
    ],
)
def test_what_cannot_be_compared_is_told_with_what_can(runs: Path, words: tuple[str, ...], said: str) -> None:
    result = ask(runs, *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_newest_run_that_has_both_sides_is_looked_at_and_named(tmp_path: Path) -> None:
    synthetic.make_run(tmp_path / "20261120-matrix", repeats=2)
    verified = synthetic.make_run(tmp_path / "20261121-verify", repeats=2)
    stored.remove(verified, lambda row: row["framework"] != "torch")
    stored.plan_only_measured(verified)
    # What a run only planned it has not.
    begun = synthetic.make_run(tmp_path / "20261122-begun", repeats=2)
    stored.remove(begun, lambda row: row["framework"] == "jax")
    result = ask(tmp_path, "jax", "torch")
    assert "looked up in run 20261120-matrix" in result.stderr
    assert "compared" in result.stdout
    # A comparison with it names what neither has measured in the line of what is not yet run, and nowhere else.
    result = ask(tmp_path, "20261121-verify", "20261122-begun")
    named = [line for line in result.stdout.splitlines() if "jax" in line.casefold()]
    assert [line.partition(" (")[0] for line in named] == ["not compared: 2 cells are not yet run"]
    result = ask(tmp_path, "jax", "torch", "--runs", "20261121-verify")
    assert "these runs measured run: 20261121-verify; image: torch-2.13.0-cpu" in result.stderr


def test_a_cell_that_is_too_noisy_is_listed_as_measured(tmp_path: Path) -> None:
    synthetic.make_run(tmp_path / "run", everywhere={"noise": 0.9}, repeats=2)
    assert "framework: jax, tensorflow, torch" in ask(tmp_path, "x", "y").stderr


def test_two_runs_without_an_image_in_common_are_told_how_their_images_are_compared(tmp_path: Path) -> None:
    for name, image in (("matrix", "torch-2.13.0-cpu"), ("imported", "host-of-somebody")):
        folder = synthetic.make_run(tmp_path / name, repeats=3, manifest={"skipped": 0, "skips": []})
        stored.remove(folder, lambda row: (row["framework"], row["workload"]) != ("torch", "cnn-cifar10"))
        stored.plan_only_measured(folder)
        stored.change(folder, "cells", lambda row, image=image: {**row, "image": image})
    result = ask(tmp_path, "matrix", "imported")
    assert result.exit_code == 2
    assert "matrix has torch-2.13.0-cpu, imported has host-of-somebody" in result.stderr
    typed = "runner compare torch-2.13.0-cpu host-of-somebody --run matrix,imported"
    assert f"{typed} --results {tmp_path}" in result.stderr
    found = ask(tmp_path, *typed.split()[2:], "--format", "json")
    assert [row["workload"] for row in json.loads(found.stdout)["rows"]] == ["cnn-cifar10"]


def test_an_image_that_serves_two_frameworks_stands_for_the_one_it_is_named_after(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "a", repeats=2)
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    keras = {**entry, "id": "f" * 16}
    for repeat in (1, 2):
        rows = synthetic.ended(entry, repeat, 40)
        rows["cells"][0]["framework"] = "keras_torch"
        stored.write_repeat(folder, keras["id"], repeat, rows)
    found = comparison.comparison(tables.load([folder]), "torch-2.13.0-cpu", "jax-0.10.2-cpu")
    assert {cell.framework for row in found.rows for cell in row.before.cells} == {"torch"}


@pytest.mark.parametrize("noisy", ["a", "b"])
def test_a_cell_too_noisy_to_say_anything_is_not_lost_and_ends_as_open(tmp_path: Path, noisy: str) -> None:
    for draw, name in enumerate("ab"):
        synthetic.make_run(tmp_path / name, repeats=3, draw=draw, changes={"noise": 0.4} if name == noisy else {})
    result = ask(tmp_path, "a", "b", "--margin", "20")
    assert f"not compared: PyTorch 2.13.0, cnn-cifar10: in {noisy}: too noisy: ± 40" in result.stdout
    assert "Not compared: 1 too noisy, with too few windows, or without parity at fp32." in result.stdout
    assert "no longer measured" not in result.stdout
    assert result.exit_code == 3


@pytest.mark.parametrize("how", ["text", "markdown"])
def test_a_reason_that_rows_share_is_said_once(tmp_path: Path, how: str) -> None:
    for name in ("a", "b"):
        synthetic.make_run(tmp_path / name, repeats=1, draw=len(name))
    told = ask(tmp_path, "a", "b", "--format", how).stdout
    rows = json.loads(ask(tmp_path, "a", "b", "--format", "json").stdout)["rows"]
    shared = [row["reason"] for row in rows if row["reason"].startswith("one repeat does not show")]
    assert len(shared) > 1
    assert told.count("one repeat does not show") == len(set(shared))
    assert told.replace("\\", "").count("open [1]") == shared.count(shared[0])


@pytest.mark.parametrize(("words", "repeats"), [(("a", "b"), 1), (("a", "b"), 3), (("torch", "jax"), 1)])
def test_at_80_columns_a_row_is_a_line_and_each_reason_is_said_once(
    tmp_path: Path, words: tuple[str, str], repeats: int
) -> None:
    for draw, name in enumerate("ab"):
        synthetic.make_run(tmp_path / name, repeats=repeats, draw=draw, everywhere={"driver_version": f"{draw}.0"})
    told = CliRunner().invoke(app, ["compare", *words, "--out", str(tmp_path)], env={"COLUMNS": "80"}).stdout
    lines = told.splitlines()
    assert max(map(len, lines)) <= 80
    (head,) = [line.split() for line in lines if line.endswith("verdict")]
    assert head == ["workload", "A", "B", "ratio", "95", "%", "verdict"]
    rows = json.loads(ask(tmp_path, *words, "--format", "json").stdout)["rows"]
    assert sum(line.split()[0] in ("cnn-cifar10", "gru-imdb") for line in lines if line.strip()) == len(rows)
    if words == ("a", "b"):
        assert [line for line in lines if line in ("PyTorch 2.13.0", "JAX 0.10.2", "TensorFlow 2.21.0")]
        assert told.count("what else differs: driver 0.0 → 1.0") == 1
    whole = " ".join(told.split())
    for part in {part for row in rows for part in row["reason"].split("; ") if len(part) > 25}:
        assert whole.count(" ".join(part.split())) == 1, part


def test_one_cell_of_two_runs_is_not_advised_to_be_measured_in_one_run(tmp_path: Path) -> None:
    for draw, name in enumerate("ab"):
        run = synthetic.make_run(tmp_path / name, repeats=3, draw=draw)
        for image, workload in synthetic.LEVELS:
            if (image, workload) != ("torch-2.13.0-cpu", "cnn-cifar10"):
                synthetic.forget(run, image, workload)
    told = " ".join(ask(tmp_path, "a", "b").stdout.split())
    assert "measure both in one" not in told
    assert "`runner history`" in told
    synthetic.make_run(tmp_path / "c", repeats=3)
    both = ask(tmp_path, "torch-2.13.0-cpu", "jax-0.10.2-cpu", "--runs", "a,c").stdout
    assert "`runner history`" not in both


def test_rows_that_need_other_numbers_of_repeats_share_the_rest_of_their_reason(tmp_path: Path) -> None:
    synthetic.make_run(tmp_path / "run", repeats=3)
    found = comparison.comparison(tables.load([tmp_path / "run"]), "torch-2.13.0-cpu", "jax-0.10.2-cpu")
    wide = "a difference of 5\u00a0% or more is possible"
    reasons = [f"{wide}; {count} repeats would tell" for count in (5, 7, 7)]
    reasons.append(f"not real after 4 questions: p = 0.03; {wide}; 9 repeats would tell")
    rows = [replace(found.rows[0], verdict="open", reason=reason) for reason in reasons]
    shown = comparison.table(replace(found, rows=tuple(rows)))
    assert shown.notes == (f"[1] {wide}",)
    column = shown.heads.index("verdict")
    assert [row[column] for row in shown.rows] == [
        *(f"open [1]: {count} repeats would tell" for count in (5, 7, 7)),
        "open [1]: not real after 4 questions: p = 0.03; 9 repeats would tell",
    ]


def test_two_runs_with_no_cell_in_common_are_one_sentence_that_says_what_differs(tmp_path: Path) -> None:
    folders = {name: synthetic.make_run(tmp_path / name) for name in ("monday", "tuesday")}
    for image, workload in synthetic.LEVELS:
        synthetic.forget(folders["monday" if workload == "gru-imdb" else "tuesday"], image, workload)
    result = ask(tmp_path, "monday", "tuesday")
    assert result.exit_code == 3
    assert result.stdout == (
        "tuesday against monday: no cell of one is in the other: workload cnn-cifar10 in monday, gru-imdb in tuesday.\n"
    )
    told = json.loads(ask(tmp_path, "monday", "tuesday", "--format", "json").stdout)
    assert len(told["unpaired"]) == 6
    assert "|" not in ask(tmp_path, "monday", "tuesday", "--format", "markdown").stdout


@pytest.mark.parametrize(("a", "b"), [("jax", "torch"), ("torch", "jax")])
def test_a_cell_that_says_nothing_is_named_as_the_side_is_that_it_is_on(tmp_path: Path, a: str, b: str) -> None:
    run, short = (synthetic.make_run(tmp_path / name / "run", windows=count) for name, count in (("a", 40), ("b", 5)))
    torch = synthetic.cell("torch-2.13.0-cpu", "gru-imdb")["id"]
    stored.write_repeat(run, torch, 1, {table: stored.rows_of(short, table, torch) for table in TABLES})
    synthetic.forget(run, "torch-2.13.0-cpu", "cnn-cifar10")
    result = ask(run.parent, a, b)
    assert result.exit_code == 3
    assert (
        "not compared: PyTorch 2.13.0, gru-imdb: in torch: too few windows: 5, and a 95 % interval needs 6\n"
        in result.stdout
    )
    assert "JAX 0.10.2, gru-imdb" not in result.stdout
    # No cell is compared, so there is no table.
    assert "ratio  " not in result.stdout


def test_a_comparison_of_two_devices_names_neither_as_what_they_share(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run")
    synthetic.add_scaling(run, {1: 0.1}, device_model="Synthetic GPU 3g")
    synthetic.add_scaling(run, {1: 0.2}, device_model="Synthetic GPU 4g")
    told = ask(tmp_path, "3g", "4g").stdout
    assert "1 cell compared" in told
    assert "device" not in told
