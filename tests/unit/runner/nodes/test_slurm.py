"""Runs over the nodes of a real Slurm, with toy cells: a node dies, the runner is killed, the time is over; no job stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from tests.fixtures.json_documents import valid
from tests.fixtures.slurm_clusters import GPUS, NODES, Cluster, slurm_cluster
from tests.fixtures.toys import toy_variables
from tests.fixtures.waiting import wait_for
from tests.fixtures.weekly import only_with
from tests.stand_ins import fleet as stand_in
from tests.unit import processes
from tests.unit.runner.nodes.test_driver import (
    WORKLOADS,
    assert_each_cell_once,
    assert_nothing_left,
    assert_verified,
    begun,
    ended,
    ended_well,
    folder_of,
    marked,
    nodes_of,
    rows,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

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
        return own | self.cluster.variables | toy_variables(self.tmp_path, toy, seconds, beat) | more

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


def start_dead_nodes(cluster: Cluster) -> None:
    for name in NODES:
        if cluster.daemons[name].poll() is not None:
            cluster.start_node(name)


@contextlib.contextmanager
def at_login(cluster: Cluster, tmp_path: Path) -> Iterator[Login]:
    start_dead_nodes(cluster)
    wait_for(lambda: set(cluster.states().values()) == {"idle"}, 90)
    there = Login(cluster, tmp_path)
    yield there
    processes.end(there.runners)
    # A job is over when each of its nodes has said so.
    start_dead_nodes(cluster)
    wait_for(lambda: cluster.jobs() == [])
    wait_for(lambda: not marked(tmp_path, b"agent"))


@pytest.fixture
def login(cluster: Cluster, tmp_path: Path) -> Iterator[Login]:
    with at_login(cluster, tmp_path) as login:
        yield login


@pytest.fixture
def patient(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Login]:
    """A cluster that gives up no node in the time of a test, as Slurm's own limit of five minutes does."""
    with (
        slurm_cluster(tmp_path_factory.mktemp("slurm"), dead_seconds=300) as cluster,
        at_login(cluster, tmp_path) as login,
    ):
        yield login


def read_until(runner: subprocess.Popen[str], word: str) -> str:
    """What it says on standard error, up to a line with this word."""
    assert runner.stderr is not None
    said = ""
    for line in runner.stderr:
        said += line
        if word in line:
            return said
    raise AssertionError(f"it never said {word!r}: {said}")


@pytest.mark.timeout(600)
def test_one_node_dies_one_stands_still_and_one_is_late_and_each_cell_has_one_row(
    patient: Login, tmp_path: Path
) -> None:
    variables = patient.variables(seconds=0.3 if ALL else 0.5, beat=0.5)
    cluster = patient.cluster
    # Slurm does not know yet that it has ended, and hands it out.
    cluster.kill_node("n2")
    runner = patient.matrix("--repeats", str(REPEATS), "--nodes", "slurm:rack", variables=variables)
    wait_for(lambda: begun(tmp_path) >= 4)
    assert "n2" not in {row["node"] for row in rows(tmp_path)}
    cluster.start_node("n2")
    said = read_until(runner, "node n2 has come")
    cluster.kill_node("n1")
    said += read_until(runner, "node n1 is lost: ")
    cluster.signal_node("n0", signal.SIGSTOP)
    said += read_until(runner, "node n0 is lost: nothing was heard of it")
    cluster.signal_node("n0", signal.SIGCONT)
    said += read_until(runner, "node n0 is back; results from before the reconnect are ignored")
    said += read_until(runner, f"{6 * REPEATS} repeats of 6 cells ok, 0 failed")
    code, err = ended(runner)
    said += err
    assert code == 0, said
    assert_each_cell_once(tmp_path, REPEATS)
    assert {row["node"] for row in rows(tmp_path)} >= {"n0", "n2"}
    late = list((folder_of(tmp_path) / "late").glob("*"))
    assert len(late) == said.count("came too late; it is kept")
    assert {row["attempt"] for row in rows(tmp_path)}.isdisjoint(path.name.removesuffix(".parcel") for path in late)
    lost = {name: entry["lost"] for name, entry in nodes_of(tmp_path).items() if entry["lost"]}
    assert lost.keys() == {"n0", "n1"}
    assert lost["n0"].endswith("; it came back")
    wait_for(lambda: not marked(tmp_path, b""))
    # What the dead node's agent had finished and could not hand over waits for it.
    left = [path for path in (tmp_path / "cache" / "dlbench").glob("s*/**/*") if path.is_file()]
    assert {path.suffix for path in left} <= {".parcel"}
    assert list(folder_of(tmp_path).rglob("*.part")) == []


def test_a_partition_is_submitted_measured_and_released_and_a_node_that_dies_costs_no_cell(
    login: Login, tmp_path: Path
) -> None:
    variables = login.variables(seconds=0.3, beat=0.5)
    runner = login.matrix("--repeats", str(REPEATS), "--nodes", "slurm:rack", variables=variables)
    wait_for(lambda: begun(tmp_path) >= 8)
    login.cluster.kill_node("n1")
    err = ended_well(runner)
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
        assert "waits in line for 3 nodes of rack" in line
        assert "; Ctrl-C takes it back" in line
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


@only_with("DLBENCH_FAULTS", "a partition is measured, and nodes die in it")
def test_an_array_verifies_each_node_by_a_task_of_its_own_and_their_runs_are_one_fleet(
    login: Login, tmp_path: Path, nvml_library: Path
) -> None:
    """The script of docs/examples, with the toy runner in place of `runner`. Three nodes are too few to judge: that is open."""
    script, fleet = tmp_path / "verify.sbatch", tmp_path / "fleet-1"
    text = (PROJECT / "docs" / "examples" / "slurm-verify.sbatch").read_text()
    script.write_text(text.replace("--array=1-16", "--array=1-3"))
    program = tmp_path / "bin" / "runner"
    program.parent.mkdir()
    # Each machine has a name of its own, and is busy until all three tasks have begun.
    program.write_text(
        f'#!/bin/sh\necho "$SLURMD_NODENAME $*" >> {tmp_path}/called\nexport DLBENCH_NODE="$SLURMD_NODENAME"\ncd {PROJECT}\n'
        f'{sys.executable} -m tests.unit.toy_runner "$@" --image toy-a --workloads gru-imdb\ncode=$?\nsleep 5\nexit $code\n'
    )
    program.chmod(0o755)
    own = {"LD_LIBRARY_PATH": str(nvml_library), "DLBENCH_REFERENCES": str(tmp_path / "references")}
    variables = login.variables(toy="cuda", FLEET=str(fleet), **own)
    variables["PATH"] = f"{program.parent}:{variables['PATH']}"
    for name in stand_in.CUDA_VARIABLES:
        variables.pop(name, None)
    words = ["sbatch", "--wait", f"--output={tmp_path}/output-%a", str(script)]
    submitted = subprocess.run(
        words, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    output = "".join(path.read_text() for path in sorted(tmp_path.glob("output-*")))
    assert submitted.returncode == 3, submitted.stderr + output
    called = sorted((tmp_path / "called").read_text().splitlines())
    assert called == [f"{name} verify --each-gpu --least-gpus 2 --results {fleet}/{name}" for name in NODES]
    judged = login.start("verify", "--each-gpu", "--run", str(fleet), "--format", "json", variables=variables)
    out, err = judged.communicate(timeout=60)
    assert judged.returncode == 3, err
    of_nodes, of_gpus = valid("verify", out)["fleets"]
    assert (of_nodes["of"], of_nodes["fleet"]["devices"]) == ("node", len(NODES))
    assert (of_gpus["of"], of_gpus["fleet"]["devices"]) == ("GPU", len(NODES) * GPUS)
    assert Counter(spot["node"] for spot in of_gpus["spots"].values()) == dict.fromkeys(NODES, GPUS)


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
    ended_well(runner)
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
    assert code == (4 if where == "closed" else 2)
    assert why in err
    assert len(err.splitlines()) == 1


def test_a_refused_allocation_says_what_slurm_says(login: Login) -> None:
    code, err = ended(login.matrix("--nodes", "slurm:rack", variables=login.variables(SALLOC_CONSTRAINT="moon")))
    assert code == 4
    assert "--nodes slurm:rack: Slurm granted no allocation: " in err
    assert "feature" in err


def test_a_node_that_is_drained_is_not_waited_for(login: Login) -> None:
    login.cluster.asked("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
    try:
        code, err = ended(login.start("nodes", "--gpus", "none", "--nodes", "slurm:n[1-2]"))
        assert code == 4
        assert "n2 is drained; name the others, `sinfo -R` says why" in err
        runner = login.start("nodes", "--gpus", "none", "--nodes", "slurm:rack")
        err = ended_well(runner)
        assert "slurm: n2 is drained; the run takes the other nodes of rack" in err
    finally:
        login.cluster.asked("scontrol", "update", "NodeName=n2", "State=RESUME")
