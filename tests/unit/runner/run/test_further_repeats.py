"""Repeats beyond the planned ones, from end to end: how they are run, stored, counted and resumed. The cells are toys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from reports.answers.left import left
from reports.data import tables
from runner.catalog.images import PROJECT
from runner.results.store import RunStore
from tests.fixtures.toys import toy_variables

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

# Two toys compute the same. So that their pair is open, it is said to be until each has had two repeats more than were planned.
RUNNER = """
from runner.run import open_pairs
def open_until_nine(columns, planned, kind):
    return [(*list(column)[:2], 1) for column in columns if len(column) > 1 and min(map(len, column.values())) < planned + 2]
open_pairs.open_pairs = open_until_nine
from tests.unit import toy_runner
toy_runner.main()
"""


def run(tmp_path: Path, *words: str, seconds: float = 0.05) -> subprocess.CompletedProcess[str]:
    environment = os.environ | toy_variables(tmp_path, seconds=seconds)
    command = [sys.executable, "-c", RUNNER, "matrix", "--out", str(tmp_path / "results"), *words]
    ended = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


def repeats_of(tmp_path: Path) -> tuple[Path, dict[str, list[int]]]:
    (manifest,) = (tmp_path / "results").glob("*/run.json")
    repeats: dict[str, list[int]] = {}
    for cell, repeat in sorted(RunStore(manifest.parent).finished()):
        repeats.setdefault(cell, []).append(repeat)
    return manifest.parent, repeats


TWO = ("--gpus", "none", "--images", "toy-a", "--images", "toy-b", "--workloads", "gru-imdb")


def test_an_open_pair_gets_further_repeats_that_every_reader_counts_and_a_run_that_goes_on_keeps(
    tmp_path: Path,
) -> None:
    ended = run(tmp_path, *TWO, "--minutes", "8", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    folder, repeats = repeats_of(tmp_path)
    assert list(repeats.values()) == [list(range(1, 10))] * 2, "seven are planned of two cells"
    assert "18 repeats of 2 cells ok" in ended.stderr
    assert "not yet run" not in ended.stderr.split("18 repeats")[1]
    told = json.loads(ended.stdout)
    assert told["planned_repeats"] == 14
    assert Counter(cell["repeat"] for cell in told["results"]) == dict.fromkeys(range(1, 10), 2)
    cells = tables.load([folder]).cells
    assert [cell.planned for cell in cells] == [9, 9]
    assert left(cells) == ()
    assert "nothing is left to run" in run(tmp_path, "--resume", folder.name, "--minutes", "8").stderr
    # A run of which a repeat is lost lacks nothing while it has as many as were planned.
    for path in folder.glob("repeats/*.r2.parcel"):
        path.unlink()
    assert "nothing is left to run" in run(tmp_path, "--resume", folder.name).stderr
    for number in (5, 6):
        for path in folder.glob(f"repeats/*.r{number}.parcel"):
            path.unlink()
    assert run(tmp_path, "--resume", folder.name).returncode == 0
    assert [len(numbers) for numbers in repeats_of(tmp_path)[1].values()] == [7, 7]


def test_repeats_that_the_user_gave_are_meant_as_they_stand(tmp_path: Path) -> None:
    ended = run(tmp_path, *TWO, "--minutes", "8", "--repeats", "2")
    assert ended.returncode == 0, ended.stderr
    assert list(repeats_of(tmp_path)[1].values()) == [[1, 2]] * 2


def test_what_a_limit_of_time_leaves_for_resume_is_measured_by_it(tmp_path: Path) -> None:
    words = (*TWO, "--workloads", "cnn-cifar10", "--minutes", "1", "--repeats", "3")
    planned = run(tmp_path, *words, "--dry-run")
    assert "left for --resume: " in planned.stderr + planned.stdout
    ended = run(tmp_path, *words, seconds=9.0)
    assert ended.returncode == 0, ended.stderr
    folder, repeats = repeats_of(tmp_path)
    assert 0 < sum(map(len, repeats.values())) < 12
    assert run(tmp_path, "--resume", folder.name).returncode == 0
    assert sorted(repeats_of(tmp_path)[1].values()) == [[1, 2, 3]] * 4
