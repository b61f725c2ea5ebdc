"""A disk runs full, is over its quota, is read-only or fails in the middle of a run.

No repeat is lost, one sentence says it, and --resume measures the rest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.errors import ExitCode
from runner.results import store
from tests.fixtures.mounts import DISKS, ENDS_OF_DISKS, TROUBLES, tmpfs
from tests.fixtures.toys import toy_variables
from tests.fixtures.waiting import wait_for
from tests.fixtures.warm import WarmProcess
from tests.fixtures.weekly import drawn

# Beside this a toy runs; six cells of half a second, so that the disk fails before the last one ends.
WORDS = ("--gpus", "none", "--workloads", "cnn-cifar10,gru-imdb", "--repeats", "1")


def matrix(folder: Path, *words: str) -> WarmProcess:
    return runner(folder, "matrix", *words)


def runner(folder: Path, command: str, *words: str, toy: str = "") -> WarmProcess:
    environment = (
        os.environ | toy_variables(folder, toy, seconds=0.5) | {"TMPDIR": str(folder / "tmp"), "DLBENCH_TOY_SYNCS": "1"}
    )
    whole = [command, *WORDS, "--out", str(folder / "results"), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return WarmProcess("tests.unit.toy_runner", whole, environment, PROJECT, **pipes)


@pytest.fixture(autouse=True)
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of a run's disks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in DISKS:
        (tmp_path / name).mkdir()
    (tmp_path / "started").touch()


def parcels(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.glob("results/*/repeats/*.parcel")}


@pytest.mark.slow
@pytest.mark.parametrize(("trouble", "mended", "disk"), drawn("DLBENCH_FAULTS", 3, ENDS_OF_DISKS))
def test_a_disk_that_fails_in_mid_run_loses_nothing_and_resume_measures_the_rest(
    tmp_path: Path, trouble: str, mended: bool, disk: str
) -> None:
    what = TROUBLES[trouble]
    with what.mounted(tmp_path / disk):
        process = matrix(tmp_path)
        wait_for(lambda: list(tmp_path.glob("results/*/repeats/*.parcel")))
        stored = parcels(tmp_path)
        (folder,) = (path.parent for path in tmp_path.glob("results/*/run.json"))
        with what.befalls(tmp_path / disk):
            _, said = process.communicate(timeout=120)
            if not mended and disk != "tmp":
                resumed = matrix(tmp_path, "--resume", folder.name)
                _, again = resumed.communicate(timeout=120)
                assert "Traceback" not in again
                assert resumed.returncode == ExitCode.CANNOT_BEGIN, again
        assert "Traceback" not in said
        command = f"runner matrix --resume {folder.name} --results {tmp_path / 'results'}"
        if disk != "tmp":
            assert process.returncode != 0
            assert said.count(what.words) == 1
            (sentence,) = (line for line in said.splitlines() if command in line)
            assert f"{tmp_path / disk} has {what.room}" in sentence
        assert stored.items() <= parcels(tmp_path).items(), "what had ended is there"
        stored = parcels(tmp_path)
        resumed = matrix(tmp_path, "--resume", folder.name)
        _, said = resumed.communicate(timeout=120)
        assert resumed.returncode == 0, said
        assert Counter(store.statuses(folder).values()) == {"ok": 6}
        assert stored.items() <= parcels(tmp_path).items(), "what had ended is not measured again"


@pytest.mark.slow
def test_a_read_only_disk_that_is_mounted_over_the_cache_in_mid_run_ends_it_with_the_command_that_goes_on(
    tmp_path: Path,
) -> None:
    process = matrix(tmp_path)
    wait_for(lambda: list(tmp_path.glob("results/*/repeats/*.parcel")))
    (folder,) = (path.parent for path in tmp_path.glob("results/*/run.json"))
    with tmpfs(tmp_path / "cache", "ro"):
        _, said = process.communicate(timeout=120)
        assert process.returncode == ExitCode.FOUND
        assert f"runner matrix --resume {folder.name} --results {tmp_path / 'results'}" in said
        resumed = matrix(tmp_path, "--resume", folder.name)
        _, said = resumed.communicate(timeout=120)
        assert resumed.returncode == ExitCode.CANNOT_BEGIN, said
    resumed = matrix(tmp_path, "--resume", folder.name)
    _, said = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, said
    assert Counter(store.statuses(folder).values()) == {"ok": 6}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["quota", "read-only", "failing"])
def test_a_machine_that_fails_under_verify_has_the_code_of_the_machine_and_accuses_no_cell(
    tmp_path: Path, trouble: str
) -> None:
    what = TROUBLES[trouble]
    prometheus = tmp_path / "verify.prom"
    words = (
        "--image",
        "toy-a",
        "--repeats",
        "3",
        "--references",
        str(tmp_path),
        "--prometheus",
        str(prometheus),
        "--format",
        "json",
    )
    with what.mounted(tmp_path / "cache"):
        process = runner(tmp_path, "verify", *words)
        wait_for(lambda: list(tmp_path.glob("results/*/repeats/*.parcel")))
        with what.befalls(tmp_path / "cache"):
            told, said = process.communicate(timeout=120)
    assert process.returncode == ExitCode.CANNOT_BEGIN, said
    assert "Traceback" not in said
    (folder,) = (path.parent for path in tmp_path.glob("results/*/run.json"))
    assert f"runner matrix --resume {folder.name} --results {tmp_path / 'results'}" in said
    if trouble != "failing":
        document = json.loads(told)
        assert document["exit_code"] == ExitCode.CANNOT_BEGIN
        assert {finding["verdict"] for finding in document["findings"]} <= {"no-reference", "open"}
    assert 'verify_exit_code{level="3"} 4' in prometheus.read_text()


@pytest.mark.slow
def test_a_run_whose_image_the_disk_holds_no_more_goes_on_where_some_is_freed(
    tmp_path: Path,
) -> None:
    first = runner(tmp_path, "matrix", "--images", "toy-a,toy-b", toy="unready")
    _, said = first.communicate(timeout=120)
    assert first.returncode == ExitCode.FOUND, said
    (folder,) = (path.parent for path in tmp_path.glob("results/*/run.json"))
    words = ("--resume", folder.name)
    full = runner(tmp_path, "matrix", *words, toy="large")
    _, said = full.communicate(timeout=120)
    assert full.returncode == ExitCode.CANNOT_BEGIN
    assert re.search(r"toy-b: the disk cannot hold it .* it takes about [0-9.]+ GB; free some", said), said
    freed = runner(tmp_path, "matrix", *words)
    _, said = freed.communicate(timeout=120)
    assert freed.returncode == ExitCode.OK, said
    assert Counter(store.statuses(folder).values()) == {"ok": 4}
