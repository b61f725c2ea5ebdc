"""The whole way, as a user goes it: `runner matrix` over the CPU images, in containers and in virtual environments.

The run in containers is killed in the middle without warning and resumed, since that is where a run is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runner.catalog.images import PROJECT, Image
from runner.engines.docker.engine import OWNER_LABEL, RUN_LABEL, DockerEngine
from runner.results import store

from .conftest import CPU_IMAGES

# the others' parity is tests/contract's
THREE = ("--frameworks", "jax,tensorflow,torch", "--workloads", "cnn-cifar10,gru-imdb")
CELLS = {(name, workload) for name in CPU_IMAGES for workload in ("cnn-cifar10", "gru-imdb")}
FIRST_CELL_SECONDS = 600  # with cold caches the images are built first


def matrix_command(engine: str, out: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "runner", "matrix", "--gpus", "none", "--preset", "quick", "--repeats", "1"]
    return [*command, "--engine", engine, "--out", str(out), *options]


def run_folder(out: Path) -> Path:
    (manifest,) = out.glob("*/run.json")
    return manifest.parent


def run_containers(client: Any) -> list[Any]:
    """The containers of runs; those that single tests label are left out."""
    found = client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True)
    return [container for container in found if not container.labels[RUN_LABEL].startswith("test")]


def wait_until(condition: Any, process: subprocess.Popen[bytes], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the matrix ended before it could be killed"
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.1)


def assert_six_good_cells(folder: Path, engine: str) -> pd.DataFrame:
    cells = store.read([folder], "cells")
    ran = cells[cells.status != "skipped"]
    assert ran.status.eq("ok").all(), ran[["image", "workload", "status", "reason"]].to_string()
    assert sorted(zip(ran.image, ran.workload, strict=True)) == sorted(CELLS)
    assert ran.parity_passed.all()
    assert set(ran.engine) == {engine}
    assert set(ran.device_kind) == {"cpu"}
    assert set(ran.data_source) == {"generated"}
    steady = store.read([folder], "samples").query("stage == 'steady'")
    assert set(steady.cell_id) == set(ran.cell_id)
    return ran


@pytest.fixture(scope="module")
def killed_and_resumed(
    engine: DockerEngine, client: Any, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A run in containers that was killed in its second cell and then resumed."""
    out = tmp_path_factory.mktemp("docker")
    with subprocess.Popen(matrix_command("docker", out, *THREE), cwd=PROJECT) as process:
        try:
            wait_until(lambda: list(out.glob("*/cells/*.r*.parquet")), process, FIRST_CELL_SECONDS)
            wait_until(lambda: run_containers(client), process, 60)
        finally:
            process.kill()
    folder = run_folder(out)
    left = run_containers(client)
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("*/*.r*.parquet")}
    resumed = subprocess.run(matrix_command("docker", out, *THREE, "--resume", folder.name), cwd=PROJECT)
    assert resumed.returncode == 0
    assert left, "the kill should have left a container behind, or this test proves nothing"
    assert finished
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "a finished cell was run again"
    yield folder
    assert run_containers(client) == []


@pytest.mark.engine
@pytest.mark.timeout(1800)
def test_a_killed_run_in_containers_is_resumed_without_losing_or_repeating_a_cell(
    killed_and_resumed: Path, client: Any, catalog: dict[str, Image]
) -> None:
    ran = assert_six_good_cells(killed_and_resumed, "docker")
    assert run_containers(client) == []
    for row in ran.itertuples():
        image = client.images.get(row.image_digest)
        assert image.labels["dlbench.image"] == row.image
        assert image.labels["dlbench.lock_sha256"] == row.lock_sha256 == catalog[row.image].lock_sha256
        assert image.labels["dlbench.bench_sha256"] == row.bench_sha256


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_a_cell_in_the_matrix_costs_no_more_around_its_phases_than_a_bare_docker_run(
    engine: DockerEngine, base_image: str, catalog: dict[str, Image], tmp_path: Path
) -> None:
    image = engine.prepare(catalog[CPU_IMAGES[0]], print)
    cell = ["cnn-cifar10", "--framework", "torch", "--precision", "fp32", "--preset", "quick", "--seed", "1"]
    ours, theirs = [], []
    for turn in range(3):  # in turns, and the least of each: what a neighbour takes is in neither
        out = tmp_path / str(turn)
        options = ["--images", image.image.name, "--frameworks", "torch", "--workloads", "cnn-cifar10"]
        subprocess.run(matrix_command("docker", out, *options), cwd=PROJECT, check=True)
        cells = store.read([run_folder(out)], "cells").query("status == 'ok'")
        (events,) = (run_folder(out) / "events").glob("*.jsonl")
        ours.append(cells.wall_seconds.item() - phase_seconds(events.read_bytes()))

        begin = time.monotonic()
        command = ["docker", "run", "--rm", "--network", "none", image.digest, "run", *cell]
        bare = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        theirs.append(time.monotonic() - begin - phase_seconds(bare.stdout))
    assert min(ours) <= 1.15 * min(theirs), f"{ours} s around the phases, against {theirs} s"


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_two_processes_over_mpi_train_together_in_a_container(
    engine: DockerEngine, base_image: str, catalog: dict[str, Image], tmp_path: Path
) -> None:
    """MPICH starts them and carries their messages in a container that has no network, no capability and a read-only root."""
    if os.environ.get("DLBENCH_DEVICES") != "all":
        pytest.skip("it builds an image that no other test needs; DLBENCH_DEVICES=all checks it")
    options = ["--images", "chainer-7.8.1-cpu", "--workloads", "cnn-mnist", "--devices", "2"]
    subprocess.run(matrix_command("docker", tmp_path, *options), cwd=PROJECT, check=True)
    cells = store.read([run_folder(tmp_path)], "cells").query("status != 'skipped'")
    assert cells[["engine", "framework", "devices", "status"]].to_numpy().tolist() == [["docker", "chainer", 2, "ok"]]
    assert cells.parity_passed.all()
    assert cells.lock_sha256.item() == catalog["chainer-7.8.1-cpu"].lock_sha256
    (events,) = (run_folder(tmp_path) / "events").glob("*.jsonl")
    told = [json.loads(line) for line in events.read_bytes().splitlines()]
    assert [each["device"]["count"] for each in told if each["event"] == "environment"] == [2]  # ChainerMN's own count


def phase_seconds(events: bytes) -> float:
    """What the cell's own phases took together."""
    phases = (json.loads(line) for line in events.splitlines())
    return sum(event["seconds"] for event in phases if event["event"] == "phase" and event["state"] == "end")


@pytest.mark.timeout(1800)
def test_the_matrix_runs_in_virtual_environments_of_the_same_locks(tmp_path: Path, catalog: dict[str, Image]) -> None:
    ended = subprocess.run(
        matrix_command("venv", tmp_path, *THREE), cwd=PROJECT, env=os.environ | {"DOCKER_HOST": "unix:///no"}
    )
    assert ended.returncode == 0
    ran = assert_six_good_cells(run_folder(tmp_path), "venv")
    assert {row.image: row.lock_sha256 for row in ran.itertuples()} == {
        name: catalog[name].lock_sha256 for name in CPU_IMAGES
    }


def test_no_container_is_asked_for_where_there_is_no_engine(tmp_path: Path) -> None:
    arguments: Sequence[str] = matrix_command("docker", tmp_path)
    ended = subprocess.run(
        arguments,
        cwd=PROJECT,
        env=os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/no"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert "no Docker Engine answers" in ended.stdout + ended.stderr
