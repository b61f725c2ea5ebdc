"""Runs over several real agents, with toy cells: whatever happens to a node, each cell has its rows once, and nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.admission.renew import renew
from runner.catalog.images import PROJECT
from runner.results import store
from runner.results.store import TABLES
from tests.fixtures.json_documents import valid
from tests.fixtures.toys import toy_variables
from tests.fixtures.waiting import wait_for
from tests.fixtures.weekly import only_with
from tests.stand_ins import fleet as stand_in
from tests.stand_ins.fleet import FakeGpu, Fleet
from tests.unit import processes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

Start = Callable[..., subprocess.Popen[str]]
WORKLOADS = ("--workloads", "cnn-cifar10,gru-imdb")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the runner over the toys; its results go to tmp_path/results, and its nodes' caches lie in tmp_path/cache."""
    started = []

    def start(
        *options: str,
        toy: str = "",
        seconds: float = 0.05,
        beat: float = 5.0,
        path: str = "",
        out: str = "results",
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        environment = os.environ | toy_variables(tmp_path, toy, seconds, beat)
        environment |= {"PATH": f"{path}:{os.environ['PATH']}", **(variables or {})}
        words = ["matrix", "--gpus", "none", "--out", str(tmp_path / out), *options]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.toy_runner", *words],
            cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    processes.end(started)
    wait_for(lambda: not agents(tmp_path))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=120)
    assert "Traceback" not in err, err
    return process.returncode, err


def ended_well(process: subprocess.Popen[str]) -> str:
    code, err = ended(process)
    assert code == 0, err
    return err


def marked(tmp_path: Path, word: bytes) -> list[int]:
    """The processes with this test's cache in their environment, and a word in their command line."""
    return processes.marked(f"DLBENCH_TOY_STARTED={tmp_path / 'started'}", word)


def agents(tmp_path: Path) -> list[int]:
    return marked(tmp_path, b"agent")


def folder_of(tmp_path: Path, out: str = "results") -> Path:
    (manifest,) = (tmp_path / out).glob("*/run.json")
    return manifest.parent


def rows(tmp_path: Path, out: str = "results") -> list[dict[str, Any]]:
    folder = folder_of(tmp_path, out)
    # The run may go on.
    renew(store.RunStore(folder))
    every = store.read([folder], "cells").to_pylist()
    return [row for row in every if row["status"] != "skipped"]


def begun(tmp_path: Path) -> int:
    """How many cells have begun."""
    started = tmp_path / "started"
    return len(started.read_text().splitlines()) if started.is_file() else 0


def nodes_of(tmp_path: Path) -> dict[str, dict[str, Any]]:
    return {entry["node"]: entry for entry in json.loads((folder_of(tmp_path) / "run.json").read_text())["nodes"]}


def assert_each_cell_once(tmp_path: Path, repeats: int, cells: int = 6) -> None:
    keys = Counter((row["cell_id"], row["repeat"]) for row in rows(tmp_path))
    assert set(keys.values()) == {1}
    assert len(keys) == cells * repeats


def assert_nothing_left(tmp_path: Path) -> None:
    wait_for(lambda: not marked(tmp_path, b""))
    assert [str(path) for path in (tmp_path / "cache" / "dlbench").glob("s*/*")] == []
    assert list(folder_of(tmp_path).rglob("*.part")) == []


def assert_verified(process: subprocess.Popen[str], tmp_path: Path, nodes: int, gpus: int) -> None:
    """`runner verify --each-gpu --format json` measured every GPU of so many nodes that have as many each, and compared them."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "Traceback" not in err, err
    of_nodes, of_gpus = valid("verify", out)["fleets"]
    assert (of_nodes["of"], of_nodes["fleet"]["devices"]) == ("node", nodes)
    assert f"{nodes} nodes: at least 4 are needed" in of_nodes["fleet"]["why_not"]
    assert (of_gpus["of"], of_gpus["fleet"]["devices"], of_gpus["fleet"]["slow"]) == ("GPU", nodes * gpus, [])
    # Ray may still name nodes of an earlier test, which cannot be reached.
    able = [name for name, entry in nodes_of(tmp_path).items() if not entry["why_not"]]
    assert Counter(spot["node"] for spot in of_gpus["spots"].values()) == dict.fromkeys(able, gpus)
    assert_each_cell_once(tmp_path, 5, cells=nodes * gpus)
    for row in rows(tmp_path):
        assert row["given_uuids"] == row["device_uuids"]
        assert of_gpus["spots"][row["given_uuids"][0]]["node"] == row["node"]


TIMES = (
    "seconds",
    "unix",
    "_json",
    "joules",
    "watts",
    "run_id",
    "node",
    "attempt",
    "log_tail",
    "celsius",
    "bytes",
    "noise",
)


def test_three_nodes_and_none_have_the_same_results_but_for_times(start: Start, tmp_path: Path) -> None:
    words = (*WORKLOADS, "--repeats", "2", "--seed", "5")
    assert ended(start(*words, out="alone"))[0] == 0
    assert ended(start(*words, "--nodes", "local:3"))[0] == 0

    def facts(out: str, table: str) -> list[tuple[Any, ...]]:
        found = store.read([folder_of(tmp_path, out)], table).to_pylist()
        kept = [
            {name: value for name, value in row.items() if not any(word in name for word in TIMES)} for row in found
        ]
        return sorted(tuple(sorted((name, repr(value)) for name, value in row.items())) for row in kept)

    for table in TABLES:
        if table != "telemetry":
            assert facts("alone", table) == facts("results", table), table
    assert len(facts("results", "cells")) == 12
    alone, several = (json.loads((folder_of(tmp_path, out) / "run.json").read_text()) for out in ("alone", "results"))
    assert alone["plan"] == several["plan"]
    by_cell: dict[str, set[str]] = {}
    for row in rows(tmp_path):
        by_cell.setdefault(row["cell_id"], set()).add(row["node"])
    assert {len(nodes) for nodes in by_cell.values()} == {2}, "the repeats of a cell are on different nodes"
    assert_nothing_left(tmp_path)


def test_a_killed_agent_is_started_again_and_each_cell_has_one_row(start: Start, tmp_path: Path) -> None:
    process = start(*WORKLOADS, "--repeats", "3", "--nodes", "local:3", seconds=0.4)
    wait_for(lambda: begun(tmp_path) >= 4)
    os.kill(agents(tmp_path)[1], signal.SIGKILL)
    err = ended_well(process)
    assert "is lost: its agent ended with exit code -9" in err
    assert "has come" in err
    assert_each_cell_once(tmp_path, 3)
    assert sum(bool(entry["lost"]) for entry in nodes_of(tmp_path).values()) == 1
    assert_nothing_left(tmp_path)


@pytest.mark.alone  # it counts on an agent that says something within seconds
def test_a_node_that_hangs_is_given_up_and_what_it_sends_late_does_not_count(start: Start, tmp_path: Path) -> None:
    process = start(*WORKLOADS, "--repeats", "3", "--nodes", "local:3", seconds=1.5, beat=0.2)
    wait_for(lambda: begun(tmp_path) >= 3)
    hung = agents(tmp_path)[2]
    os.kill(hung, signal.SIGSTOP)
    lines: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if "is lost: nothing was heard of it" in line:
            os.kill(hung, signal.SIGCONT)
    assert process.wait(60) == 0, "".join(lines)
    printed = "".join(lines)
    assert "is silent: nothing was heard of it" in printed
    assert "is back; results from before the reconnect are ignored" in printed
    assert_each_cell_once(tmp_path, 3)
    # Its cell ended meanwhile. Whether it sends the result or hears first that nobody wants it, depends on its next step.
    late = list((folder_of(tmp_path) / "late").glob("*"))
    assert len(late) == printed.count("came too late; it is kept") <= 1
    assert_nothing_left(tmp_path)


TWO_WAYS = only_with("DLBENCH_FAULTS", "a node that is slow and one that is cut off are tested with each change")


@pytest.mark.alone  # it counts on agents that say something within seconds
def test_late_results_are_kept_aside_and_a_node_under_which_cells_were_lost_twice_is_drained(
    start: Start, tmp_path: Path
) -> None:
    err = ended_well(start(*WORKLOADS, "--repeats", "2", "--nodes", "local:3", toy="mute", seconds=3.5, beat=0.15))
    assert_each_cell_once(tmp_path, 2)
    late = list((folder_of(tmp_path) / "late").iterdir())
    assert len(late) == 2
    attempts = {row["attempt"] for row in rows(tmp_path)}
    assert attempts.isdisjoint(path.name.removesuffix(".parcel") for path in late)
    assert {row["node"] for row in rows(tmp_path)} == {"local-1", "local-2"}
    assert "node local-3 is drained: cells were lost with it twice" in err
    assert "drained: local-3; look at these nodes before you use them again" in err
    drained = (
        "Node local-3 was drained: nothing was heard of it for a minute and a half, and cells were lost with it twice."
    )
    assert drained in " ".join(err.split())
    page = (folder_of(tmp_path) / "report.html").read_text()
    # The page unfolds the reason.
    assert all(f">{part}" in page for part in drained.split(": "))
    assert "2 results came too late and did not count" in err
    assert {name: entry["drained"] for name, entry in nodes_of(tmp_path).items() if entry["drained"]} == {
        "local-3": True
    }
    assert_nothing_left(tmp_path)


def test_a_cell_that_ends_two_agents_has_failed_and_the_others_are_measured(start: Start, tmp_path: Path) -> None:
    code, err = ended(start(*WORKLOADS, "--repeats", "1", "--nodes", "local:3", toy="murder"))
    assert code == 1
    assert_each_cell_once(tmp_path, 1)
    (failed,) = (row for row in rows(tmp_path) if row["status"] != "ok")
    assert (failed["image"], failed["workload"], failed["error_kind"]) == ("toy-b", "gru-imdb", "node-lost")
    assert "were lost while it ran there, so it may be the cell that ends them" in failed["reason"]
    assert err.count("is lost: its agent ended") == 2
    assert_nothing_left(tmp_path)
    # One that is killed after its last cell, and the driver with it: its folder, and a parcel that was not acknowledged.
    spool = tmp_path / "cache" / "dlbench" / "spool" / folder_of(tmp_path).name / "local-1"
    (spool / "running-a_1_2_3_x" / "repeats").mkdir(parents=True)
    (spool / "unacknowledged.parcel").write_bytes(b"")
    _, err = ended(start("--resume", folder_of(tmp_path).name))
    assert "is complete: nothing is left to run" in err
    assert_nothing_left(tmp_path)


def test_ctrl_c_ends_every_cell_on_every_node_and_resume_goes_on(start: Start, tmp_path: Path) -> None:
    process = start(*WORKLOADS, "--repeats", "1", "--nodes", "local:2", seconds=1.0)
    wait_for(lambda: begun(tmp_path) >= 3 and store.RunStore(folder_of(tmp_path)).finished())
    process.send_signal(signal.SIGINT)
    code, err = ended(process)
    assert code == 130
    assert "interrupted; what had ended is kept. Go on with" in err
    wait_for(lambda: not marked(tmp_path, b""))
    # A result that the driver had no time to take waits in the spool, and nothing else.
    left = [path for path in (tmp_path / "cache" / "dlbench").glob("s*/**/*") if path.is_file()]
    assert {path.suffix for path in left} <= {".parcel"}
    before = rows(tmp_path)
    ended_well(start("--resume", folder_of(tmp_path).name))
    assert_each_cell_once(tmp_path, 1)
    assert all(row in rows(tmp_path) for row in before)
    assert_nothing_left(tmp_path)


def test_nodes_that_are_taken_away_begin_no_cell_that_cannot_end_and_what_is_ended_is_not_stored(
    start: Start, tmp_path: Path
) -> None:
    """A cell's length is a guess at first, of more than 20 s; then it is what the others took."""
    words = (*WORKLOADS, "--repeats", "1", "--nodes", "local:2")
    code, err = ended(start(*words, variables={"DLBENCH_TOY_ENDS": "20"}))
    assert code == 4, "nothing was measured"
    assert begun(tmp_path) == 0
    assert "the nodes are taken away soon: a cell that could not end before was not begun" in err
    assert "not all was run; what had ended is kept. Go on with: " in err
    ended_well(start("--resume", folder_of(tmp_path).name))
    assert_each_cell_once(tmp_path, 1)
    # All of a cell's like have been measured by now, in a tenth of a second. These hang.
    (folder,) = (tmp_path / "results").iterdir()
    folder.rename(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "results" / "earlier")
    code, err = ended(start(*words, toy="hang", variables={"DLBENCH_TOY_ENDS": "12"}))
    assert code == 1
    shutil.rmtree(tmp_path / "results" / "earlier")
    stored = rows(tmp_path)
    assert {(row["workload"], row["status"]) for row in stored} <= {("cnn-cifar10", "ok")}
    assert begun(tmp_path) > 6 + len(stored)
    assert "the nodes are taken away soon" in err
    wait_for(lambda: not marked(tmp_path, b""))
    ended_well(start("--resume", folder_of(tmp_path).name))
    assert_each_cell_once(tmp_path, 1)
    assert_nothing_left(tmp_path)


def test_slurm_s_signal_before_the_end_of_a_job_does_what_ctrl_c_does(start: Start, tmp_path: Path) -> None:
    variables = {"SLURM_JOB_ID": "12"}
    process = start(*WORKLOADS, "--repeats", "1", "--nodes", "local:2", seconds=1.0, variables=variables)
    wait_for(lambda: begun(tmp_path) >= 2)
    process.send_signal(signal.SIGUSR1)
    code, err = ended(process)
    assert code == 130
    assert "SIGUSR1: Slurm ends this job soon, so the run ends now" in err
    assert "interrupted; what had ended is kept. Go on with" in err
    wait_for(lambda: not marked(tmp_path, b""))


def test_what_the_nodes_had_finished_when_the_driver_was_killed_is_not_measured_again(
    start: Start, tmp_path: Path
) -> None:
    process = start(*WORKLOADS, "--repeats", "1", "--nodes", "local:2", seconds=0.3)
    wait_for(lambda: begun(tmp_path) >= 2)
    process.send_signal(signal.SIGSTOP)
    spool = tmp_path / "cache" / "dlbench" / "spool"
    wait_for(lambda: len(list(spool.rglob("*.parcel"))) >= 2)
    process.kill()
    wait_for(lambda: not agents(tmp_path))
    finished = {path.name.removesuffix(".parcel") for path in spool.rglob("*.parcel")}
    again = begun(tmp_path)
    ended_well(start("--resume", folder_of(tmp_path).name))
    assert_each_cell_once(tmp_path, 1)
    assert finished <= {row["attempt"] for row in rows(tmp_path)}
    assert begun(tmp_path) - again <= 6 - len(finished)
    assert_nothing_left(tmp_path)


def test_a_node_that_lies_is_cut_off_and_nothing_that_it_says_is_stored(start: Start, tmp_path: Path) -> None:
    code, err = ended(start(*WORKLOADS, "--repeats", "1", "--nodes", "local:2", toy="lies"))
    assert code == 4, "nothing was measured"
    assert err.count("it sent what no agent sends (the repeat ran on devices that were not assigned to it)") == 2
    assert "drained: local-1, local-2; look at these nodes before you use them again" in err
    assert [row for row in rows(tmp_path) if row["status"] == "ok"] == []
    wait_for(lambda: not marked(tmp_path, b""))


@pytest.mark.alone  # it counts on agents that say something within seconds
@pytest.mark.parametrize(
    ("way", "lost"),
    [
        ("dribble", None),
        pytest.param("half", "nothing was heard of it", marks=TWO_WAYS),
        pytest.param("claim", "nothing was heard of it", marks=TWO_WAYS),
        ("ends", "more than 100 empty lines came, and no frame"),
    ],
)
def test_the_other_nodes_keep_their_pace_beside_one_that_dribbles(
    start: Start, tmp_path: Path, way: str, lost: str | None
) -> None:
    words = (*WORKLOADS, "--repeats", "4", "--nodes", "local:3")
    err = ended_well(start(*words, toy=way, seconds=0.4, beat=0.2))
    assert_each_cell_once(tmp_path, 4)
    assert {row["status"] for row in rows(tmp_path)} == {"ok"}
    assert (f"node local-3 is lost: {lost}" in err) is bool(lost), err
    assert ("local-3" in {row["node"] for row in rows(tmp_path)}) is not bool(lost)
    for node in ("local-1", "local-2"):
        begun = sorted(row["started_unix"] for row in rows(tmp_path) if row["node"] == node)
        between = [after - before for before, after in zip(begun, begun[1:], strict=False)]
        # A silent node is lost after 3 s, and no other one waits for that.
        assert max(between[:-1]) < 2.5, between
    # Of a result that the driver did not take a copy stays there.
    wait_for(lambda: not marked(tmp_path, b""))


def test_a_result_that_comes_twice_is_one_row(start: Start, tmp_path: Path) -> None:
    ended_well(start(*WORKLOADS, "--repeats", "1", "--nodes", "local:2", toy="twice"))
    assert_each_cell_once(tmp_path, 1)
    assert not (folder_of(tmp_path) / "late").exists()
    assert_nothing_left(tmp_path)


def test_an_image_that_no_node_can_make_fails_its_cells(start: Start, tmp_path: Path) -> None:
    code, err = ended(start(*WORKLOADS, "--repeats", "1", "--nodes", "local:2", toy="unready"))
    assert code == 1, err
    assert_each_cell_once(tmp_path, 1)
    failed = [row for row in rows(tmp_path) if row["status"] != "ok"]
    assert {(row["image"], row["error_kind"], row["reason"]) for row in failed} == {
        ("toy-b", "engine", "toy-b could not be built: the disk of toys is full")
    }


@pytest.fixture
def rack(tmp_path: Path) -> Path:
    """A stand-in for ssh that starts agents here, each as a machine of its own; a host whose folder is not there cannot be reached."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "at = sys.argv.index('--')\n"
        "host, command = sys.argv[at + 1:]\n"
        f"if not os.path.isdir({str(tmp_path)!r} + '/' + host): sys.exit('ssh: connect to host %s: No route' % host)\n"
        "os.environ['DLBENCH_TOY_BOOT'] = host\n"
        f"os.environ['DLBENCH_LEASES'] = {str(tmp_path)!r} + '/' + host\n"
        "os.execv('/bin/sh', ['sh', '-c', command])\n"
    )
    program.chmod(0o755)
    return program.parent


@pytest.mark.alone  # it counts on an agent that says something within seconds
def test_hosts_measure_over_ssh_and_one_that_comes_late_takes_its_share(
    start: Start, rack: Path, tmp_path: Path
) -> None:
    for host in ("n1", "n2"):
        (tmp_path / host).mkdir()
    (tmp_path / "hosts").write_text("n1\nn2\nn3\n")
    words = (*WORKLOADS, "--repeats", "3", "--nodes", f"ssh:{tmp_path / 'hosts'}")
    process = start(*words, seconds=0.7, beat=0.5, path=str(rack))
    wait_for(lambda: begun(tmp_path) >= 2)
    (tmp_path / "n3").mkdir()
    err = ended_well(process)
    assert "n3 takes no part: its agent ended with exit code 1: ssh: connect to host n3: No route" in err
    assert "node n3 has come" in err
    assert_each_cell_once(tmp_path, 3)
    assert {row["node"] for row in rows(tmp_path)} == {"n1", "n2", "n3"}
    assert_nothing_left(tmp_path)


def test_a_plan_over_nodes_is_shown_and_starts_nothing(start: Start, tmp_path: Path) -> None:
    process = start(*WORKLOADS, "--nodes", "local:2", "--dry-run", "--format", "json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    document = valid("matrix --dry-run", out)
    assert len(document["cells"]) == 6
    assert document["why_engine"].startswith("2 of 2 nodes, local-1, local-2; ")
    assert begun(tmp_path) == 0
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--minutes", "5"), "--minutes does not go with --nodes"),
        (("--cool-down",), "--cool-down does not go with --nodes"),
        (("--lock-clocks", "1000"), "--lock-clocks does not go with --nodes"),
    ],
)
def test_an_option_that_would_not_keep_its_promise_is_refused(options: tuple[str, ...], why: str, start: Start) -> None:
    code, err = ended(start(*options, "--nodes", "local:2"))
    assert code == 2
    assert why in err


FLEET = Fleet(tuple(FakeGpu() for _ in range(4)))


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of toy cells on four GPUs."""
    shown = stand_in.environment(nvml_library, FLEET.write(tmp_path / "fleet"))
    return shown | {"DLBENCH_LEASES": str(tmp_path / "leases")}


def test_two_nodes_share_the_gpus_of_a_machine_and_each_cell_runs_on_its_node_s_own(
    start: Start, tmp_path: Path, gpus: dict[str, str]
) -> None:
    words = ("--gpus", "all", "--workloads", "gru-imdb", "--repeats", "4", "--nodes", "local:2")
    ended_well(start(*words, toy="cuda", seconds=0.3, variables=gpus))
    assert_each_cell_once(tmp_path, 4, cells=3)
    own = {name: set(entry["gpus"]) for name, entry in nodes_of(tmp_path).items()}
    assert {len(uuids) for uuids in own.values()} == {2}
    assert set.union(*own.values()) == set(FLEET.uuids())
    for row in rows(tmp_path):
        assert row["given_uuids"] == row["device_uuids"]
        assert set(row["given_uuids"]) <= own[row["node"]]
    assert Counter(row["node"] for row in rows(tmp_path)) == {"local-1": 6, "local-2": 6}
    assert len({row["given_uuids"][0] for row in rows(tmp_path)}) == 4
    assert_nothing_left(tmp_path)


def test_a_gpu_that_falls_off_the_bus_costs_no_cell(start: Start, tmp_path: Path, gpus: dict[str, str]) -> None:
    words = ("--gpus", "all", "--workloads", "gru-imdb", "--repeats", "4", "--nodes", "local:2")
    process = start(*words, toy="cuda", seconds=1.0, variables=gpus)
    wait_for(lambda: begun(tmp_path) >= 4)
    Fleet((FakeGpu(lost=1), *FLEET.gpus[1:])).write(tmp_path / "fleet")
    err = ended_well(process)
    gone = FLEET.uuids()[0]
    assert f"GPU {gone} fell off the bus" in err
    assert_each_cell_once(tmp_path, 4, cells=3)
    assert json.loads((folder_of(tmp_path) / "run.json").read_text())["devices_lost"] == [gone]
    assert_nothing_left(tmp_path)


@pytest.mark.alone  # it counts on an agent that says something within seconds
def test_a_partition_that_heals_in_time_costs_nothing(start: Start, tmp_path: Path) -> None:
    process = start(*WORKLOADS, "--repeats", "2", "--nodes", "local:2", seconds=0.5, beat=0.3)
    wait_for(lambda: begun(tmp_path) >= 2)
    stopped = agents(tmp_path)[0]
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(stopped, signal.SIGCONT)
    err = ended_well(process)
    assert "is silent" in err
    assert "is lost" not in err
    assert_each_cell_once(tmp_path, 2)
    assert not (folder_of(tmp_path) / "late").exists()
