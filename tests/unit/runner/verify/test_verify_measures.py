"""`runner verify` where it measures: real processes of toy cells, whose recorded stream is the same each time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.errors import ExitCode
from runner.results import store
from tests.fixtures import warm
from tests.fixtures.toys import toy_variables
from tests.stand_ins import fleet as stand_in
from tests.stand_ins.fleet import FakeGpu, Fleet

pytestmark = pytest.mark.usefixtures("own_cache")


def variables_of(tmp_path: Path, more: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        **toy_variables(tmp_path),
        "DLBENCH_REFERENCES": str(tmp_path / "references"),
        **more,
    }


def toys(tmp_path: Path, *words: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The real command over toy cells that replay a recorded stream, in real processes."""
    environment = variables_of(tmp_path, variables or {})
    if variables is None:
        return warm.run("tests.unit.toy_runner", *words, env=environment)
    # A variable that names the stand-in for NVML's library is read as a process starts.
    command = [sys.executable, "-m", "tests.unit.toy_runner", *words]
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_cells_are_measured_judged_saved_and_pass_the_second_time(tmp_path: Path) -> None:
    (tmp_path / "started").touch()
    here = ("--gpus", "none", "--workloads", "gru-imdb", "--out", str(tmp_path / "results"), "--format", "json")
    first = toys(tmp_path, "verify", *here)
    assert first.returncode == 3, first.stderr
    assert "ceilings are not known" in first.stderr  # this interpreter has no torch: the probe says so, and cells go on
    told = json.loads(first.stdout)
    assert {finding["verdict"] for finding in told["findings"]} == {"no-reference"}
    assert {finding["step"]["repeats"] for finding in told["findings"]} == {5}
    run = told["findings"][0]["run_id"]
    saved = toys(tmp_path, "reference", "save", run, "--name", "toys", "--out", str(tmp_path / "results"))
    assert saved.returncode == 0, saved.stderr
    second = toys(tmp_path, "verify", *here)
    assert second.returncode == 0, second.stderr
    assert {finding["verdict"] for finding in json.loads(second.stdout)["findings"]} == {"ok"}


@pytest.mark.slow
def test_a_cell_that_is_open_is_repeated_until_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "started").touch()
    uneven = {"DLBENCH_TOY": "uneven"}
    here = ("--gpus", "none", "--image", "toy-a", "--workloads", "gru-imdb", "--out", str(tmp_path / "results"))
    first = json.loads(toys(tmp_path, "verify", *here, "--format", "json", variables=uneven).stdout)["findings"][0]
    saved = toys(tmp_path, "reference", "save", first["run_id"], "--name", "toys", "--out", str(tmp_path / "results"))
    assert saved.returncode == 0, saved.stderr

    # Nearer than what one repeat can tell of a cell whose repeats differ by 4 %, though it took as long as the reference.
    near = (*here, "--repeats", "1", "--margin", "4.4", "--format", "json")
    few = toys(tmp_path, "verify", *near, "--most-repeats", "1", variables=uneven)
    alone = json.loads(few.stdout)["findings"][0]
    assert (few.returncode, alone["verdict"], alone["step"]["repeats"]) == (3, "open", 1)

    enough = toys(tmp_path, "verify", *near, variables=uneven)
    sure = json.loads(enough.stdout)["findings"][0]
    assert (enough.returncode, sure["verdict"], sure["step"]["repeats"]) == (0, "ok", 9), enough.stderr
    assert "going on to 9 repeats" in enough.stderr
    manifest = json.loads((tmp_path / "results" / sure["run_id"] / "run.json").read_text())
    assert manifest["extended"][sure["cell_id"]] == 9


# --- GPUs that are compared with one another ----------------------------------------------------------------------------------

FLEET = Fleet(tuple(FakeGpu() for _ in range(4)))


@pytest.fixture
def on_gpus(nvml_library: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of toy cells on four GPUs."""
    (tmp_path / "started").touch()
    shown = stand_in.environment(nvml_library, FLEET.write(tmp_path / "fleet"))
    return shown | {"DLBENCH_TOY": "cuda", "DLBENCH_LEASES": str(tmp_path / "leases")}


def each_gpu(tmp_path: Path) -> tuple[str, ...]:
    words = ("verify", "--each-gpu", "--image", "toy-a", "--workloads", "gru-imdb", "--repeats", "2")
    return (*words, "--out", str(tmp_path / "results"), "--format", "json")


def run_of(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "results").iterdir()
    return folder


def turns(folder: Path) -> list[tuple[str, int]]:
    """(GPU, repeat) of each cell that ended well, in the order in which they began."""
    rows = store.read([folder], "cells").to_pandas().query("status == 'ok'").sort_values("started_unix")
    return [(row.device_uuid, row.repeat) for row in rows.itertuples()]


def test_gpus_are_measured_in_blocks_and_compared(tmp_path: Path, on_gpus: dict[str, str]) -> None:
    ended = toys(tmp_path, *each_gpu(tmp_path), variables=on_gpus)
    told = json.loads(ended.stdout)
    assert [finding["fleet"]["devices"] for finding in told["fleets"]] == [4]
    assert ended.returncode == told["exit_code"] == 0, ended.stderr
    order = turns(run_of(tmp_path))
    assert [repeat for _, repeat in order] == [1] * 4 + [2] * 4
    assert {uuid for uuid, _ in order[:4]} == {uuid for uuid, _ in order[4:]} == set(FLEET.uuids())


@pytest.mark.parametrize("nodes", [(), ("--nodes", "local:2")], ids=["here", "nodes"])
def test_a_build_that_uses_no_gpu_is_not_measured_in_place_of_the_gpus(
    tmp_path: Path, on_gpus: dict[str, str], nodes: tuple[str, ...]
) -> None:
    """Its cells would be measured on the CPU, and with a reference of that the answer could be that all is well."""
    ended = toys(tmp_path, *each_gpu(tmp_path), *nodes, variables=on_gpus | {"DLBENCH_TOY": ""})
    assert ended.returncode == ExitCode.CANNOT_BEGIN, ended.stderr
    assert "--each-gpu: no planned cell uses a GPU" in ended.stderr
    assert not list((tmp_path / "results").glob("*")), "what could not begin leaves nothing"


@pytest.mark.slow
def test_gpus_whose_comparison_was_interrupted_are_compared_after_resume(
    tmp_path: Path, on_gpus: dict[str, str]
) -> None:
    environment = variables_of(tmp_path, {**on_gpus, "DLBENCH_TOY_SECONDS": "1"})
    command = [sys.executable, "-m", "tests.unit.toy_runner", *each_gpu(tmp_path)]
    process = subprocess.Popen(
        command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (ended := list((tmp_path / "results").glob("*/repeats/*.r1.parcel"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ended
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, said
    folder = run_of(tmp_path)
    assert f"go on with `runner matrix --resume {folder}`" in said
    assert 0 < len(turns(folder)) < 8
    resumed = toys(tmp_path, "matrix", "--resume", str(folder), variables=on_gpus)
    assert resumed.returncode == 0, resumed.stderr
    assert len(turns(folder)) == 8
    judged = toys(tmp_path, "verify", "--each-gpu", "--run", str(folder), variables=on_gpus)
    assert judged.returncode == 0, judged.stdout
    assert "no GPU stood out" in judged.stdout


@pytest.mark.slow
def test_the_gpus_of_two_nodes_are_measured_in_one_run_and_two_nodes_are_too_few_to_judge(
    tmp_path: Path, nvml_library: Path
) -> None:
    fleet = Fleet(tuple(FakeGpu() for _ in range(8)))
    variables = stand_in.environment(nvml_library, fleet.write(tmp_path / "fleet"))
    variables |= {"DLBENCH_TOY": "cuda", "DLBENCH_LEASES": str(tmp_path / "leases")}
    (tmp_path / "started").touch()
    words = (
        "verify",
        "--each-gpu",
        "--image",
        "toy-a",
        "--workloads",
        "gru-imdb",
        "--nodes",
        "local:2",
        "--time",
        "1h",
    )
    ended = toys(tmp_path, *words, "--out", str(tmp_path / "results"), "--format", "json", variables=variables)
    assert ended.returncode == 3, ended.stderr
    assert "--time 1h: level longest: gru-imdb, 9 repeats" in ended.stderr
    told = json.loads(ended.stdout)
    nodes, gpus = told["fleets"]
    assert (nodes["of"], nodes["fleet"]["devices"]) == ("node", 2)
    assert "2 nodes: at least 4 are needed" in nodes["fleet"]["why_not"]
    assert (gpus["of"], gpus["fleet"]["devices"], gpus["fleet"]["slow"]) == ("GPU", 8, [])
    assert {spot["node"] for spot in gpus["spots"].values()} == {"local-1", "local-2"}
    order = turns(run_of(tmp_path))
    for node in ("local-1", "local-2"):
        mine = [(uuid, repeat) for uuid, repeat in order if gpus["spots"][uuid]["node"] == node]
        assert [repeat for _, repeat in mine] == [repeat for repeat in range(1, 10) for _ in range(4)]
    options = json.loads((run_of(tmp_path) / "run.json").read_text())["options"]
    assert (options["repeats"], options["workloads"]) == (9, ["gru-imdb"]), "what --resume goes on with"
    again = toys(tmp_path, "verify", "--each-gpu", "--run", str(run_of(tmp_path)), variables=variables)
    assert again.returncode == 3
    assert "2 nodes: at least 4 are needed" in " ".join(again.stdout.split())
