"""Runs over the nodes of a real Slurm, with toy cells: a node dies, the runner is killed, the time is over; no job stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from tests.fixtures.slurm_clusters import GPUS, NODES, Cluster, slurm_cluster
from tests.fixtures.waiting import wait_for
from tests.stand_ins import fleet as stand_in
from tests.unit.runner.nodes.test_driver import (
    WORKLOADS,
    assert_each_cell_once,
    assert_nothing_left,
    assert_verified,
    begun,
    ended,
    folder_of,
    marked,
    nodes_of,
    rows,
)

pytestmark = pytest.mark.slow

ALL = os.environ.get("DLBENCH_FAULTS") == "all"

# 6 cells: 48 of them are measured, or 300.
REPEATS = 50 if ALL else 8

# A runner that is killed can take nothing back itself: the harshest end is always tried.
POLITE = pytest.mark.skipif(not ALL, reason="a quarter of a minute each: DLBENCH_FAULTS=all")
ENDS = [pytest.param(how, marks=POLITE) for how in (signal.SIGINT, signal.SIGTERM)] + [signal.SIGKILL]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


class Login:
    """The machine on which a person types: runners of one test, over toy cells."""

    def __init__(self, cluster: Cluster, tmp_path: Path) -> None:
        self.cluster, self.tmp_path = cluster, tmp_path
        self.runners: list[subprocess.Popen[str]] = []

    def variables(self, toy: str = "", seconds: float = 0.05, beat: float = 5.0, **more: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        return own | self.cluster.variables | {
            "DLBENCH_TOY": toy,
            "DLBENCH_TOY_SECONDS": str(seconds),
            "DLBENCH_TOY_STARTED": str(self.tmp_path / "started"),
            "DLBENCH_TOY_BEAT": str(beat),
            "XDG_CACHE_HOME": str(self.tmp_path / "cache"),
        } | more  # fmt: skip

    def start(self, *words: str, variables: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.toy_runner", *words],
            cwd=PROJECT, env=variables or self.variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.runners.append(process)
        return process

    def matrix(self, *words: str, variables: dict[str, str] | None = None) -> subprocess.Popen[str]:
        usual = ("matrix", "--gpus", "none", "--out", str(self.tmp_path / "results"), *WORKLOADS)
        return self.start(*usual, *words, variables=variables)


@pytest.fixture
def login(cluster: Cluster, tmp_path: Path) -> Iterator[Login]:
    for name in NODES:
        if cluster.daemons[name].poll() is not None:
            cluster.start_node(name)
    wait_for(lambda: set(cluster.states().values()) == {"idle"}, 90)
    there = Login(cluster, tmp_path)
    yield there
    for runner in there.runners:
        if runner.poll() is None:
            runner.kill()
        runner.communicate()
    wait_for(lambda: cluster.jobs() == [])
    wait_for(lambda: not marked(tmp_path, b"agent"))


def test_a_partition_is_submitted_measured_and_released_and_a_node_that_dies_costs_no_cell(
    login: Login, tmp_path: Path
) -> None:
    variables = login.variables(seconds=0.3, beat=0.5)
    runner = login.matrix("--repeats", str(REPEATS), "--nodes", "slurm:rack", variables=variables)
    wait_for(lambda: begun(tmp_path) >= 8)
    login.cluster.kill_node("n1")
    code, err = ended(runner)
    assert code == 0, err
    assert "slurm: job " in err
    assert "node n1 is lost: " in err
    assert_each_cell_once(tmp_path, REPEATS)
    assert {row["node"] for row in rows(tmp_path)} >= {"n0", "n2"}
    assert nodes_of(tmp_path)["n1"]["lost"]
    # The job is given back. Slurm counts it until it gives the dead node up.
    assert {job.split()[1] for job in login.cluster.jobs()} <= {"COMPLETING"}
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("how", ENDS)
def test_no_job_stays_behind_however_the_runner_ends(login: Login, tmp_path: Path, how: signal.Signals) -> None:
    runner = login.matrix("--repeats", "3", "--nodes", "slurm:n[0-1]", variables=login.variables(seconds=2.0))
    wait_for(lambda: begun(tmp_path) >= 2)
    assert len(login.cluster.jobs()) == 1
    runner.send_signal(how)
    runner.communicate(timeout=60)
    wait_for(lambda: login.cluster.jobs() == [])
    wait_for(lambda: not marked(tmp_path, b""))


@pytest.mark.parametrize("how", ENDS)
def test_a_runner_that_waits_in_line_says_so_and_takes_its_job_back_when_it_ends(
    login: Login, how: signal.Signals
) -> None:
    first = subprocess.Popen(["salloc", "--exclusive", "-w", "n2", "cat"], env=login.variables(), stdin=subprocess.PIPE)
    try:
        wait_for(lambda: len(login.cluster.jobs()) == 1)
        runner = login.matrix("--nodes", "slurm:rack")
        assert runner.stderr is not None
        line = runner.stderr.readline()
        assert "waits in line for 3 nodes of rack; Ctrl-C takes it back" in line
        runner.send_signal(how)
        runner.communicate(timeout=60)
        wait_for(lambda: len(login.cluster.jobs()) == 1)
    finally:
        first.communicate(timeout=60)


def test_an_allocation_s_script_measures_on_all_its_nodes_and_their_gpus(
    login: Login, tmp_path: Path, nvml_library: Path
) -> None:
    """The script of docs/examples, with the toy runner in place of `runner`."""
    script = tmp_path / "matrix.sbatch"
    text = (PROJECT / "docs" / "examples" / "slurm-matrix.sbatch").read_text()
    script.write_text(text.replace("--nodes=4", "--nodes=3"))
    program = tmp_path / "bin" / "runner"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncd {PROJECT}\nexec {sys.executable} -m tests.unit.toy_runner "$@" '
        f"--workloads gru-imdb --repeats 4 --out {tmp_path / 'results'}\n"
    )
    program.chmod(0o755)
    variables = login.variables(toy="cuda", seconds=0.3)
    variables["LD_LIBRARY_PATH"] = str(nvml_library)
    variables["PATH"] = f"{program.parent}:{variables['PATH']}"
    for name in stand_in.CUDA_VARIABLES:
        variables.pop(name, None)
    output = tmp_path / "output"
    submitted = subprocess.run(
        ["sbatch", "--wait", f"--output={output}", str(script)], env=variables, cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr + output.read_text()
    assert "3 nodes of partition rack; it ends in" in output.read_text()
    assert_each_cell_once(tmp_path, 4, cells=3)
    own = {name: set(entry["gpus"]) for name, entry in nodes_of(tmp_path).items()}
    assert {name: len(uuids) for name, uuids in own.items()} == dict.fromkeys(NODES, GPUS)
    for row in rows(tmp_path):
        assert row["given_uuids"] == row["device_uuids"]
        assert set(row["given_uuids"]) <= own[row["node"]]
    assert {row["node"] for row in rows(tmp_path)} == set(NODES)
    assert_nothing_left(tmp_path)


def test_every_gpu_of_a_partition_is_verified_in_one_run(login: Login, tmp_path: Path, nvml_library: Path) -> None:
    own = {"LD_LIBRARY_PATH": str(nvml_library), "DLBENCH_REFERENCES": str(tmp_path / "references")}
    variables = login.variables(toy="cuda", **own)
    for name in stand_in.CUDA_VARIABLES:
        variables.pop(name, None)
    words = ("verify", "--each-gpu", "--image", "toy-a", "--workloads", "gru-imdb", "--nodes", "slurm:rack")
    runner = login.start(*words, "--out", str(tmp_path / "results"), "--format", "json", variables=variables)
    assert_verified(runner, tmp_path, len(NODES), GPUS)
    wait_for(lambda: login.cluster.jobs() == [])
    assert_nothing_left(tmp_path)


def test_an_array_verifies_each_node_by_a_task_of_its_own(login: Login, tmp_path: Path) -> None:
    """The script of docs/examples; `runner` only notes where it is called, and with what."""
    script = tmp_path / "verify.sbatch"
    text = (PROJECT / "docs" / "examples" / "slurm-verify.sbatch").read_text()
    script.write_text(text.replace("--array=1-16", "--array=1-3"))
    program = tmp_path / "bin" / "runner"
    program.parent.mkdir()
    # As long as all three take to begin.
    program.write_text(f'#!/bin/sh\necho "$SLURMD_NODENAME $*" >> {tmp_path}/called\nexec sleep 5\n')
    program.chmod(0o755)
    variables = login.variables(FLEET="/shared/fleet-1")
    variables["PATH"] = f"{program.parent}:{variables['PATH']}"
    words = ["sbatch", "--wait", f"--output={tmp_path}/output-%a", str(script)]
    ended = subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    called = sorted((tmp_path / "called").read_text().splitlines())
    assert called == [f"{name} verify --each-gpu --out /shared/fleet-1/{name}" for name in NODES]


def test_a_signal_before_the_end_of_a_job_ends_the_run_which_can_go_on(login: Login, tmp_path: Path) -> None:
    script = tmp_path / "job"
    words = f"matrix --gpus none --repeats 2 --out {tmp_path / 'results'} {' '.join(WORKLOADS)} --nodes slurm:n[0-1]"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -m tests.unit.toy_runner {words}\n")
    output = tmp_path / "output"
    subprocess.run(
        ["sbatch", "--exclusive", "--nodes=3", f"--chdir={PROJECT}", f"--output={output}", str(script)],
        env=login.variables(seconds=1.0), check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    wait_for(lambda: begun(tmp_path) >= 3)
    (job,) = login.cluster.jobs()
    login.cluster.asked("scancel", "--batch", "--signal=USR1", job.split()[0])
    wait_for(lambda: login.cluster.jobs() == [])
    printed = output.read_text()
    assert "SIGUSR1: Slurm ends this job soon" in printed
    assert "interrupted; what had ended is kept. Go on with: " in printed
    runner = login.start("matrix", "--resume", folder_of(tmp_path).name, "--out", str(tmp_path / "results"))
    code, err = ended(runner)
    assert code == 0, err
    assert_each_cell_once(tmp_path, 2)
    assert {row["node"] for row in rows(tmp_path)} == {"n0", "n1"}


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("nowhere", "Slurm knows no partition and no node of the name nowhere; `sinfo` shows both"),
        ("n[0-9]", "Slurm knows no partition and no node of the name n3"),
        ("closed", "this partition is down; choose another"),
        ("rack;reboot", "'rack;reboot' is neither a partition nor nodes"),
    ],
)
def test_what_slurm_cannot_give_is_one_sentence(login: Login, where: str, why: str) -> None:
    code, err = ended(login.start("nodes", "--gpus", "none", "--nodes", f"slurm:{where}"))
    assert code == 2
    assert why in err
    assert len(err.splitlines()) == 1


def test_a_refused_allocation_says_what_slurm_says(login: Login) -> None:
    code, err = ended(login.matrix("--nodes", "slurm:rack", variables=login.variables(SALLOC_CONSTRAINT="moon")))
    assert code == 2
    assert "--nodes slurm:rack: Slurm granted no allocation: salloc: error: " in err


def test_a_node_that_is_drained_is_not_waited_for(login: Login) -> None:
    login.cluster.asked("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
    try:
        code, err = ended(login.start("nodes", "--gpus", "none", "--nodes", "slurm:n[1-2]"))
        assert code == 2
        assert "n2 is drained; name the others, `sinfo -R` says why" in err
        runner = login.start("nodes", "--gpus", "none", "--nodes", "slurm:rack")
        code, err = ended(runner)
        assert code == 0, err
        assert "slurm: n2 is drained; the run takes the other nodes of rack" in err
    finally:
        login.cluster.asked("scontrol", "update", "NodeName=n2", "State=RESUME")
