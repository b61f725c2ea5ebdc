"""`runner compare`, through the command and stored runs: what is paired with what, the verdicts, and every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from reports.answers import compare
from reports.data import tables
from runner.cli.main import app
from runner.results.store import RunStore
from tests.fixtures import synthetic

SLOW = {("torch-2.13.0-cpu", "cnn-cifar10"): 1.08}
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
        ("torch", "cnn-cifar10"): "real",
        ("torch", "gru-imdb"): "noise",
        ("tensorflow", "cnn-cifar10"): "noise",
        ("jax", "cnn-cifar10"): "cannot tell",
        ("jax", "gru-imdb"): "noise",
    }
    assert (found["by"], found["correction"], found["exit_code"]) == ("run", "Holm", 1)
    assert result.exit_code == 1
    (torch,) = [row for row in found["rows"] if row["verdict"] == "real"]
    assert torch["ratio_low"] < 1.08 < torch["ratio_high"]
    assert torch["p_holm"] < 0.05
    # What failed on both sides is no regression, and is not passed over.
    assert [(one["cell"], one["lost"]) for one in found["unpaired"]] == [("tensorflow-2.21.0-cpu", False)]


def test_nothing_slower_ends_with_0_and_what_cannot_be_told_with_2(tmp_path: Path) -> None:
    fast = {name: 0.8 for name in synthetic.LEVELS if name != synthetic.UNSTEADY}
    folders = [
        synthetic.make_run(tmp_path / "a", repeats=4),
        synthetic.make_run(tmp_path / "b", repeats=4, draw=2, slower=fast),
    ]
    assert ask(tmp_path, "a", "b").exit_code == 2
    for folder in folders:
        synthetic.forget(folder, *synthetic.UNSTEADY)
    result = ask(tmp_path, "a", "b", "--format", "json")
    assert {row["verdict"] for row in json.loads(result.stdout)["rows"]} == {"real"}
    assert result.exit_code == 0


def test_a_cell_that_no_longer_runs_ends_with_1(tmp_path: Path) -> None:
    synthetic.make_run(tmp_path / "a", repeats=3)
    folder = synthetic.make_run(tmp_path / "b", repeats=3, draw=1)
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    RunStore(folder).write_repeat(entry["id"], 2, {"cells": [synthetic.failed_row(entry)]})
    result = ask(tmp_path, "a", "b")
    assert result.exit_code == 1
    assert "not compared: torch-2.13.0-cpu, cnn-cifar10: in b: 1 of 3 repeats: out-of-memory" in result.stdout
    assert "1 no longer measured" in result.stdout


def test_two_images_of_different_frameworks_are_compared_by_workload(runs: Path) -> None:
    found = json.loads(ask(runs, "torch-2.13.0-cpu", "jax-0.10.2-cpu", "--runs", "monday", "--format", "json").stdout)
    assert found["by"] == "image"
    assert [(row["image"], row["workload"]) for row in found["rows"]] == [
        ("jax-0.10.2-cpu", "cnn-cifar10"),
        ("jax-0.10.2-cpu", "gru-imdb"),
    ]
    assert all("framework 2.13.0 → 0.10.2" in row["differences"] for row in found["rows"])


def gpu_run(folder: Path, model: str, cuda: str, draw: int, **more: Any) -> Path:
    """A synthetic run of PyTorch and the others on a made-up GPU."""
    told = {"device_kind": "cuda", "device_model": model, "cuda_version": cuda, "device_uuids": [f"GPU-{model[-4:]}"]}
    return synthetic.make_run(folder, repeats=3, draw=draw, everywhere={**told, **more})


def test_two_gpus_are_compared_by_a_part_of_their_names_or_their_uuid(tmp_path: Path) -> None:
    gpu_run(tmp_path / "a", "NVIDIA H100", "12.8", 1)
    gpu_run(tmp_path / "b", "NVIDIA H200", "12.8", 2)
    for words in (("h100", "h200"), ("GPU-H100", "GPU-H200")):
        found = json.loads(ask(tmp_path, *words, "--runs", "a,b", "--format", "json").stdout)
        assert (found["by"], len(found["rows"])) == ("gpu", 5)
        assert {row["device"] for row in found["rows"]} == {"NVIDIA H200"}
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
    assert len(rows) == 5
    assert float(rows[0]["ratio"]) == pytest.approx(1.08, abs=0.03)
    lines = ask(runs, "monday", "tuesday", "--format", "markdown").stdout.splitlines()
    assert sum(line.startswith("| ") for line in lines) == 2 + 5
    assert lines[0].startswith("**tuesday against monday: 5 cells compared: 1 slower, 3 noise and 1 undecided.**")
    assert len({line.count(" | ") for line in lines if line.startswith("| ")}) == 1


def test_a_hostile_name_stays_text_in_every_format(tmp_path: Path) -> None:
    for name, draw in (("a", 1), ("b", 2)):
        synthetic.make_run(tmp_path / name, repeats=2, draw=draw, changes={"image": HOSTILE, "framework": "=1+1"})
    for how in ("markdown", "csv", "json", "text"):
        text = ask(tmp_path, "a", "b", "--format", how).stdout
        assert "\x1b" not in text
        assert "\u202e" not in text
    found = ask(tmp_path, "a", "b", "--format", "markdown").stdout
    assert "<script>" not in found.replace("\\<script\\>", "")
    assert "torch\\|\\<script\\>" in found
    rows = list(csv.DictReader(io.StringIO(ask(tmp_path, "a", "b", "--format", "csv").stdout)))
    assert {row["framework"] for row in rows} >= {"'=1+1"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x", "y"), "'x' and 'y' do not name two things of one kind; these runs have run: "),
        (("monday", "tuesday", "--by", "gpus"), "'gpus' is not one of 'run', 'image', 'gpu', 'cuda'"),
        (("monday", "tuesday", "--format", "yaml"), "'yaml' is not one of 'text', 'json', 'markdown', 'csv'"),
        (("monday", "monday"), "both sides are 'monday'"),
        (("monday", "tuesday", "--by", "image"), "these runs have image: "),
    ],
)
def test_what_cannot_be_compared_is_told_with_what_can(runs: Path, words: tuple[str, ...], said: str) -> None:
    result = ask(runs, *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_an_image_that_serves_two_frameworks_stands_for_the_one_it_is_named_after(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "a", repeats=2)
    entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
    keras = {**entry, "id": "f" * 16}
    for repeat in (1, 2):
        rows = synthetic.ended(entry, repeat, 40)
        rows["cells"][0]["framework"] = "keras_torch"
        RunStore(folder).write_repeat(keras["id"], repeat, rows)
    found = compare.comparison(tables.load([folder]), "torch-2.13.0-cpu", "jax-0.10.2-cpu")
    assert {cell.framework for row in found.rows for cell in row.before.cells} == {"torch"}
