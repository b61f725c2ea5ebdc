"""Somebody else fills a disk in the middle of a run. No repeat is lost, one sentence says it, and --resume measures all that is left."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.results import store
from tests.fixtures.mounts import filled, tmpfs
from tests.fixtures.toys import toy_variables
from tests.fixtures.waiting import wait_for
from tests.fixtures.warm import WarmProcess

# Beside this a toy runs; each takes a second, so that the disk is full before the next one ends.
WORDS = ("--gpus", "none", "--workloads", "cnn-cifar10,gru-imdb", "--repeats", "1")

# Which of its folders is full -> the variable, or the option, that names it.
DISKS = ("cache", "results", "tmp")


def matrix(folder: Path, *words: str) -> WarmProcess:
    environment = os.environ | toy_variables(folder, seconds=1.0) | {"TMPDIR": str(folder / "tmp")}
    command = ["matrix", *WORDS, "--out", str(folder / "results"), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return WarmProcess("tests.unit.toy_runner", command, environment, PROJECT, **pipes)


@pytest.mark.slow
@pytest.mark.parametrize("given_back", [True, False])
@pytest.mark.parametrize("disk", DISKS)
def test_a_disk_that_another_fills_in_mid_run_loses_nothing_and_resume_measures_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str, given_back: bool
) -> None:
    # The tables are signed with the key that lies there.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in DISKS:
        (tmp_path / name).mkdir()
    (tmp_path / "started").touch()
    with tmpfs(tmp_path / disk, "size=24m,nr_inodes=400"):
        process = matrix(tmp_path)
        wait_for(lambda: list(tmp_path.glob("results/*/repeats/*.parcel")))
        with filled(tmp_path / disk):
            _, said = process.communicate(timeout=120)
            (folder,) = (path.parent for path in tmp_path.glob("results/*/run.json"))
            stored = {path: path.read_bytes() for path in folder.glob("repeats/*.parcel")}
            if not given_back and disk != "tmp":
                _, again = matrix(tmp_path, "--resume", folder.name).communicate(timeout=120)
                assert "Traceback" not in again
        assert "Traceback" not in said
        command = f"runner matrix --resume {folder.name} --out {tmp_path / 'results'}"
        if disk != "tmp":
            assert process.returncode != 0
            assert said.count("No space left on device") == 1
            (sentence,) = (line for line in said.splitlines() if command in line)
            assert f"{tmp_path / disk} has 0.00 GB of 0.03 GB free" in sentence
        resumed = matrix(tmp_path, "--resume", folder.name)
        _, said = resumed.communicate(timeout=120)
        assert resumed.returncode == 0, said
        assert Counter(store.statuses(folder).values()) == {"ok": 6}
        assert {path: path.read_bytes() for path in stored} == stored, "what had ended is not measured again"
