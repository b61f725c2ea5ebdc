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
from runner.engines.docker.engine import RUN_LABEL, DockerEngine
from runner.results import store
from runner.results.parcel import decode
from tests.fixtures.cpus import take_own_cpus

from .conftest import CPU_IMAGES

# Two that are built within a minute or so: an XLA compiler's and a NumPy framework's. The others' containers are test_build's.
QUICK_IMAGES = ("jax-0.10.2-cpu", "chainer-7.8.1-cpu")

# Two cells an image, so that one is killed in the middle and others come after it. Each network's parity is tests/contract's.
RESUMED = ("mlp-mnist", "cnn-mnist")
SMALL = ("mlp-mnist",)  # where what is tested is not the network
MOST_COST = 1.15  # of the seconds that a bare container takes around the phases
LEAST_TURNS, MOST_TURNS = 3, 8
FIRST_CELL_SECONDS = 600  # with cold caches the images are built first


def matrix_command(engine: str, out: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "runner", "matrix", "--gpus", "none", "--preset", "quick", "--repeats", "1"]
    return [*command, "--engine", engine, "--out", str(out), *options]


def cells_of(frameworks: str, workloads: tuple[str, ...]) -> tuple[str, ...]:
    return "--frameworks", frameworks, "--workloads", ",".join(workloads)


def run_folder(out: Path) -> Path:
    (manifest,) = out.glob("*/run.json")
    return manifest.parent


def run_containers(client: Any, out: Path) -> list[Any]:
    """The containers of the run that lies there."""
    label = f"{RUN_LABEL}={run_folder(out).name}"
    found: list[Any] = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
    return found


def wait_until(condition: Any, process: subprocess.Popen[bytes], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the matrix ended before it could be killed"
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.1)


def assert_good_cells(folder: Path, engine: str, images: tuple[str, ...], workloads: tuple[str, ...]) -> pd.DataFrame:
    cells = store.read([folder], "cells").to_pandas()
    ran = cells[cells.status != "skipped"]
    assert ran.status.eq("ok").all(), ran[["image", "workload", "status", "reason"]].to_string()
    assert sorted(zip(ran.image, ran.workload, strict=True)) == sorted(
        (name, workload) for name in images for workload in workloads
    )
    assert ran.parity_passed.all()
    assert set(ran.engine) == {engine}
    assert set(ran.device_kind) == {"cpu"}
    assert set(ran.data_source) == {"generated"}
    steady = store.read([folder], "samples").to_pandas().query("stage == 'steady'")
    assert set(steady.cell_id) == set(ran.cell_id)
    return ran


@pytest.fixture(scope="module")
def killed_and_resumed(
    engine: DockerEngine, client: Any, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A run in containers that was killed in its second cell and then resumed."""
    out = tmp_path_factory.mktemp("docker")
    cells = cells_of("jax,chainer", RESUMED)
    command = matrix_command("docker", out, *cells)
    with subprocess.Popen(command, cwd=PROJECT, preexec_fn=take_own_cpus) as process:  # noqa: PLW1509
        try:
            wait_until(lambda: list(out.glob("*/repeats/*.parcel")), process, FIRST_CELL_SECONDS)
            wait_until(lambda: run_containers(client, out), process, 60)
        finally:
            process.kill()
    folder = run_folder(out)
    left = run_containers(client, out)
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("repeats/*.parcel")}
    resumed = subprocess.run([*command, "--resume", folder.name], cwd=PROJECT, preexec_fn=take_own_cpus)
    assert resumed.returncode == 0
    assert left, "the kill should have left a container behind, or this test proves nothing"
    assert finished
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "a finished cell was run again"
    yield folder
    assert run_containers(client, out) == []


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(1800)
def test_a_killed_run_in_containers_is_resumed_without_losing_or_repeating_a_cell(
    killed_and_resumed: Path, client: Any, catalog: dict[str, Image]
) -> None:
    ran = assert_good_cells(killed_and_resumed, "docker", QUICK_IMAGES, RESUMED)
    assert run_containers(client, killed_and_resumed.parent) == []
    for row in ran.itertuples():
        image = client.images.get(row.image_digest)
        assert image.labels["dlbench.image"] == row.image
        assert image.labels["dlbench.lock_sha256"] == row.lock_sha256 == catalog[row.image].lock_sha256
        assert image.labels["dlbench.bench_sha256"] == row.bench_sha256


@pytest.mark.skipif(
    os.environ.get("DLBENCH_SPEED") != "all",
    reason="two minutes of turns on a quiet machine; DLBENCH_SPEED=all takes them",
)
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.engine
@pytest.mark.timeout(900)
def test_a_cell_in_the_matrix_costs_no_more_around_its_phases_than_a_bare_docker_run(
    engine: DockerEngine, base_image: str, catalog: dict[str, Image], tmp_path: Path
) -> None:
    image = engine.prepare(catalog[CPU_IMAGES[0]], print)
    cell = [*SMALL, "--framework", "torch", "--precision", "fp32", "--preset", "quick", "--seed", "1"]
    ours: list[float] = []
    theirs: list[float] = []
    # In turns, and the least of each: what a neighbour takes is in neither. On a busy machine more turns find a quiet moment.
    while len(ours) < LEAST_TURNS or (len(ours) < MOST_TURNS and min(ours) > MOST_COST * min(theirs)):
        out = tmp_path / str(len(ours))
        options = ["--images", image.image.name, "--frameworks", "torch", "--workloads", *SMALL]
        subprocess.run(matrix_command("docker", out, *options), cwd=PROJECT, check=True)
        cells = store.read([run_folder(out)], "cells").to_pandas().query("status == 'ok'")
        (parcel,) = (run_folder(out) / "repeats").iterdir()
        ours.append(cells.wall_seconds.item() - phase_seconds(printed(parcel)))

        begin = time.monotonic()
        command = ["docker", "run", "--rm", "--network", "none", image.digest, "run", *cell]
        bare = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        theirs.append(time.monotonic() - begin - phase_seconds(bare.stdout))
    assert min(ours) <= MOST_COST * min(theirs), f"{ours} s around the phases, against {theirs} s"


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(900)
def test_two_processes_over_mpi_train_together_in_a_container(
    engine: DockerEngine, base_image: str, catalog: dict[str, Image], tmp_path: Path
) -> None:
    """MPICH starts them and carries their messages in a container that has no network, no capability and a read-only root."""
    options = ["--images", "chainer-7.8.1-cpu", "--workloads", "cnn-mnist", "--devices", "2"]
    subprocess.run(matrix_command("docker", tmp_path, *options), cwd=PROJECT, check=True)
    cells = store.read([run_folder(tmp_path)], "cells").to_pandas().query("status != 'skipped'")
    assert cells[["engine", "framework", "devices", "status"]].to_numpy().tolist() == [["docker", "chainer", 2, "ok"]]
    assert cells.parity_passed.all()
    assert cells.lock_sha256.item() == catalog["chainer-7.8.1-cpu"].lock_sha256
    (parcel,) = (run_folder(tmp_path) / "repeats").iterdir()
    told = [json.loads(line) for line in printed(parcel).splitlines()]
    assert [each["device"]["count"] for each in told if each["event"] == "environment"] == [2]  # ChainerMN's own count


def printed(path: Path) -> bytes:
    """What the cell of a parcel printed."""
    return b"".join(piece for _, piece in decode(path.read_bytes(), path.name).tape)


def phase_seconds(events: bytes) -> float:
    """What the cell's own phases took together."""
    phases = (json.loads(line) for line in events.splitlines())
    return sum(event["seconds"] for event in phases if event["event"] == "phase" and event["state"] == "end")


@pytest.mark.slow
@pytest.mark.xdist_group("matrix of environments")  # it asks no engine
@pytest.mark.timeout(1800)
def test_the_matrix_runs_in_virtual_environments_of_the_same_locks(tmp_path: Path, catalog: dict[str, Image]) -> None:
    ended = subprocess.run(
        matrix_command("venv", tmp_path, *cells_of("jax,tensorflow,torch", SMALL)),
        cwd=PROJECT,
        env=os.environ | {"DOCKER_HOST": "unix:///no"},
        preexec_fn=take_own_cpus,
    )
    assert ended.returncode == 0
    ran = assert_good_cells(run_folder(tmp_path), "venv", CPU_IMAGES, SMALL)
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
    assert ended.returncode == 4
    assert "no container engine answers" in ended.stdout + ended.stderr
