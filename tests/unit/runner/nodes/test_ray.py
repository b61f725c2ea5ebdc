"""Runs over the nodes of real Ray clusters, with toy cells: a raylet is killed, stopped, late or busy, and each cell has its rows once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from tests.fixtures.ray_clusters import Raylets
from tests.fixtures.toys import toy_variables
from tests.fixtures.waiting import wait_for
from tests.stand_ins import fleet as stand_in
from tests.stand_ins.fleet import FakeGpu, Fleet
from tests.unit import processes
from tests.unit.runner.nodes.test_driver import (
    WORKLOADS,
    assert_each_cell_once,
    assert_verified,
    begun,
    ended,
    ended_well,
    folder_of,
    marked,
    nodes_of,
    rows,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.usefixtures("own_cache")]

# Of 6 cells: 72 repeats, or 300.
ALL = os.environ.get("DLBENCH_FAULTS") == "all"
REPEATS = 50 if ALL else 12


@pytest.fixture(scope="module")
def cluster() -> Iterator[Raylets]:
    raylets = Raylets()
    yield raylets
    raylets.close()


class Rack:
    """Nodes of a cluster, and drivers on them, whose toy cells are of one test."""

    def __init__(self, cluster: Raylets, tmp_path: Path) -> None:
        self.cluster, self.tmp_path = cluster, tmp_path
        self.nodes: list[object] = []
        self.drivers: list[subprocess.Popen[str]] = []

    def variables(self, toy: str, seconds: float, beat: float) -> dict[str, str]:
        return toy_variables(self.tmp_path, toy, seconds, beat)

    def add(
        self, name: str, toy: str = "", seconds: float = 0.3, beat: float = 5.0, gpus: int = 0,
        more: Mapping[str, str] | None = None,
    ) -> object:  # fmt: skip
        own = {"DLBENCH_LEASES": str(self.tmp_path / name), **(more or {})}
        self.nodes.append(self.cluster.add(name, self.variables(toy, seconds, beat) | own, gpus))
        return self.nodes[-1]

    def kill(self, node: object) -> None:
        self.cluster.kill(node)
        self.nodes.remove(node)

    def start(self, *words: str, toy: str = "", seconds: float = 0.3, beat: float = 5.0) -> subprocess.Popen[str]:
        out = ["--gpus", "none"] if "--gpus" not in words and "--resume" not in words else []
        return self.command("matrix", *out, *words, toy=toy, seconds=seconds, beat=beat)

    def command(self, *words: str, toy: str = "", seconds: float = 0.3, beat: float = 5.0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.toy_runner", *words, "--out", str(self.tmp_path / "results")],
            cwd=PROJECT, env=os.environ | self.variables(toy, seconds, beat), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.drivers.append(process)
        return process

    def measure(self, *words: str, **more: object) -> subprocess.Popen[str]:
        return self.start(*words, "--nodes", f"ray:{self.cluster.address}", **more)  # type: ignore[arg-type]

    def working(self) -> list[int]:
        """The agents and their cells."""
        return [*marked(self.tmp_path, b"toy_runner"), *marked(self.tmp_path, b"line_by_line")]

    def left(self) -> list[Path]:
        """What agents left in the nodes' cache."""
        return [path for path in (self.tmp_path / "cache" / "dlbench").glob("s*/**/*") if path.is_file()]

    def close(self) -> None:
        processes.end(self.drivers)
        for node in list(self.nodes):
            self.kill(node)
        wait_for(lambda: not marked(self.tmp_path, b""))


@pytest.fixture
def rack(cluster: Raylets, tmp_path: Path) -> Iterator[Rack]:
    nodes = Rack(cluster, tmp_path)
    yield nodes
    nodes.close()


def read_until(process: subprocess.Popen[str], word: str) -> str:
    """What it printed, up to a line with this."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if word in line:
            return "".join(lines)
    raise AssertionError(f"it never said {word!r}: {''.join(lines)}")


@pytest.mark.timeout(600)
def test_one_raylet_is_killed_one_stopped_and_one_late_and_each_cell_has_one_row(rack: Rack, tmp_path: Path) -> None:
    pace = {"seconds": 0.8, "beat": 0.5}
    first, second, third = (rack.add(name, **pace) for name in ("n1", "n2", "n3"))
    process = rack.measure(*WORKLOADS, "--repeats", str(REPEATS), **pace)
    wait_for(lambda: begun(tmp_path) >= 5, 120)
    rack.kill(second)
    printed = read_until(process, "is lost: ")
    rack.add("n4", **pace)
    printed += read_until(process, "has come")
    rack.cluster.signal(third, signal.SIGSTOP)
    printed += read_until(process, "is lost: nothing was heard of it")
    rack.cluster.signal(third, signal.SIGCONT)
    code, err = ended(process)
    printed += err
    assert code == 0, printed
    assert_each_cell_once(tmp_path, REPEATS)
    late = list((folder_of(tmp_path) / "late").glob("*"))
    assert len(late) == printed.count("came too late; it is kept")
    assert {row["attempt"] for row in rows(tmp_path)}.isdisjoint(path.name.removesuffix(".parcel") for path in late)
    assert len(nodes_of(tmp_path)) == 4
    assert sum("Ray: " in (entry["lost"] or "") for entry in nodes_of(tmp_path).values()) == 1
    assert len({row["node"] for row in rows(tmp_path)}) >= 3
    wait_for(lambda: not rack.working())
    # What the killed node's agent had finished and could not hand over waits for it.
    assert {path.suffix for path in rack.left()} <= {".parcel"}
    assert list(folder_of(tmp_path).rglob("*.part")) == []
    assert first in rack.nodes


@pytest.mark.skipif(not ALL, reason="half a minute, and test_driver.py does it without Ray: DLBENCH_FAULTS=all")
def test_a_killed_driver_leaves_no_agent_and_the_run_is_gone_on_with(rack: Rack, tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        rack.add(name, seconds=1.0)
    process = rack.measure(*WORKLOADS, "--repeats", "1")
    wait_for(lambda: begun(tmp_path) >= 3, 120)
    process.kill()
    # Ray ends the actors. Their agents hear it, end their cells and remove what these left.
    wait_for(lambda: not rack.working())
    assert {path.suffix for path in rack.left()} <= {".parcel"}
    ended_well(rack.start("--resume", folder_of(tmp_path).name))
    assert_each_cell_once(tmp_path, 1)
    wait_for(lambda: not rack.working())
    assert rack.left() == []


@pytest.mark.skipif(not ALL, reason="half a minute, and test_driver.py does it without Ray: DLBENCH_FAULTS=all")
def test_a_late_result_is_kept_aside_and_does_not_count(rack: Rack, tmp_path: Path) -> None:
    """One of three nodes says nothing for 7 s, while its cell runs, and is given up after 4.5 s."""
    pace = {"seconds": 7.0, "beat": 0.3}
    for toy in ("", "", "mute"):
        rack.add(f"n{len(rack.nodes)}", toy=toy, **pace)
    err = ended_well(rack.measure("--workloads", "gru-imdb", "--repeats", "1", **pace))
    assert "is lost: nothing was heard of it" in err
    assert "1 result came too late and did not count" in err
    assert_each_cell_once(tmp_path, 1, cells=3)
    (late,) = (folder_of(tmp_path) / "late").iterdir()
    assert late.name.removesuffix(".parcel") not in {row["attempt"] for row in rows(tmp_path)}
    assert len({row["node"] for row in rows(tmp_path)}) == 2
    wait_for(lambda: not rack.working())
    assert rack.left() == []


@pytest.mark.skipif(not ALL, reason="half a minute, and test_slurm.py does it with Slurm: DLBENCH_FAULTS=all")
def test_every_gpu_of_a_cluster_is_verified_in_one_run(rack: Rack, tmp_path: Path, nvml_library: Path) -> None:
    for node in range(3):
        gpus = tuple(FakeGpu(uuid=f"GPU-0000000{node}-5a5a-4b4b-8c8c-00000000000{at}") for at in range(2))
        shown = stand_in.environment(nvml_library, Fleet(gpus).write(tmp_path / f"fleet-{node}"), {})
        rack.add(f"n{node}", toy="cuda", gpus=2, seconds=0.05, more=shown)
    words = ("--each-gpu", "--image", "toy-a", "--workloads", "gru-imdb", "--nodes", f"ray:{rack.cluster.address}")
    runner = rack.command("verify", *words, "--format", "json", toy="cuda", seconds=0.05)
    assert_verified(runner, tmp_path, 3, 2)
    wait_for(lambda: not rack.working())
    assert rack.left() == []


HOLDER = """
import ray, sys, time
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
@ray.remote(num_gpus=1, num_cpus=0)
class Other:
    def when(self):
        return time.time()
other = Other.remote()
ray.get(other.when.remote())
print("held", flush=True)
sys.stdin.readline()
ray.kill(other)
sys.stdin.readline()
print("got", ray.get(Other.remote().when.remote()), flush=True)
"""


@pytest.mark.timeout(150)
def test_other_ray_work_is_waited_for_and_stays_off(rack: Rack, tmp_path: Path, nvml_library: Path) -> None:
    shown = stand_in.environment(nvml_library, Fleet((FakeGpu(), FakeGpu())).write(tmp_path / "fleet"), {})
    rack.add("n1", toy="cuda", gpus=2, more=shown)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, rack.cluster.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    # Ray says on the standard output of every driver which nodes have died.
    assert any(line == "held\n" for line in holder.stdout)
    words = ("--gpus", "all", "--workloads", "gru-imdb", "--repeats", "2")
    process = rack.measure(*words, toy="cuda")
    read_until(process, "waits in line for 2 GPUs (1 free) and 1 CPU")
    assert begun(tmp_path) == 0
    holder.stdin.write("\n")
    holder.stdin.flush()
    wait_for(lambda: begun(tmp_path) >= 1)
    holder.stdin.write("\n")
    holder.stdin.flush()
    code, err = ended(process)
    freed = time.time()
    assert code == 0, err
    assert_each_cell_once(tmp_path, 2, cells=3)
    assert {row["given_uuids"][0] for row in rows(tmp_path)} == set(Fleet((FakeGpu(), FakeGpu())).uuids())
    # Ray may say more, before and after.
    (got,) = map(float, re.findall(r"^got ([0-9.]+)$", holder.communicate(timeout=60)[0], re.MULTILINE))
    assert max(row["started_unix"] for row in rows(tmp_path)) < got < freed + 30
