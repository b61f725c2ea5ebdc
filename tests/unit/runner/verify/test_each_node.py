"""`runner verify --each-gpu` over stored runs of several nodes: of one run, or of each node's own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.verify import output
from runner.verify.peer_comparison import with_fleets
from runner.verify.verification import Verification, assess
from tests.fixtures.fleets import WORKLOADS, each_gpu_run, uuids
from tests.fixtures.json_documents import valid
from tests.fixtures.synthetic import Row

GPUS = uuids("NVIDIA H200", 100)
HEALTHY = [1.0, 1.004, 0.997, 1.002]


def verified(*words: str, columns: int = 200) -> Any:
    variables = {"DLBENCH_REFERENCES": "/nowhere", "COLUMNS": str(columns)}
    return CliRunner().invoke(app, ["verify", "--each-gpu", *words], env=variables)


def compared(*folders: Path) -> Verification:
    return with_fleets(assess(folders, []), folders)


def named(verification: Verification) -> set[tuple[str, str]]:
    return {(found.of, slow.device) for found in verification.fleets for slow in found.fleet.slow}


def racks(tmp_path: Path, ratios: Mapping[str, float], settings: Mapping[int, Row] | None = None) -> Path:
    """One run over these nodes of four GPUs, each with its ratio."""
    numbers = {node: range(4 * at, 4 * at + 4) for at, node in enumerate(ratios)}
    levels = [ratio * level for ratio in ratios.values() for level in HEALTHY]
    return each_gpu_run(tmp_path / "run", levels, nodes=numbers, settings=settings)


def alone(tmp_path: Path, ratios: Mapping[str, float]) -> list[Path]:
    """A run of each of these nodes, taken alone."""
    return [
        each_gpu_run(
            tmp_path / node, [ratio * level for level in HEALTHY], numbers=range(4 * at, 4 * at + 4), host=node, seed=at
        )
        for at, (node, ratio) in enumerate(ratios.items())
    ]


NODES = dict.fromkeys(("n1", "n2", "n3", "n4"), 1.0)


def test_a_slow_node_is_named_with_what_is_set_up_otherwise_and_its_gpus_are_not(tmp_path: Path) -> None:
    slow = {number: {"power_limit_watts": 500.0, "pcie_width_now": 8} for number in range(8, 12)}
    run = racks(tmp_path, {**NODES, "n3": 1.08}, slow)
    found = compared(run)
    assert named(found) == {("node", "n3")}
    ended = verified("--run", str(run))
    assert ended.exit_code == 1
    assert "FAIL: see the nodes, the GPUs and the cells" in ended.stdout
    lines = " ".join(ended.stdout.split())
    assert "4 nodes of NVIDIA H200: node n3 takes" in lines
    why = "node n3 is set up otherwise: power limit 500 W, and 700 W on 3 of 3 others; PCIe lanes in use 8, and 16 on 3 of 3 others"
    assert why in lines


def test_a_slow_node_that_is_set_up_like_the_others_says_so(tmp_path: Path) -> None:
    found = compared(racks(tmp_path, {**NODES, "n3": 1.08}))
    (first, *_) = (finding for finding in found.fleets if finding.of == "node")
    assert first.beside == (
        "node n3: nothing that was recorded is set up otherwise than on the others; look at cooling, power and other work",
    )


def test_a_weak_gpu_is_named_with_its_node_and_its_setting(tmp_path: Path) -> None:
    run = racks(tmp_path, NODES, {6: {"pcie_width_now": 4}})
    assert compared(run).exit_code == 0
    levels = [*HEALTHY, 1.0, 1.002, 1.15, 0.999, *HEALTHY, *HEALTHY]
    numbers = {f"n{at}": range(4 * at, 4 * at + 4) for at in range(4)}
    weak = each_gpu_run(tmp_path / "weak", levels, nodes=numbers, settings={6: {"pcie_width_now": 4}})
    found = compared(weak)
    assert named(found) == {("GPU", GPUS[6])}
    lines = list(output.details(found))
    assert (
        sum(
            f"{GPUS[6]} of node n1 takes" in line and "times as long as the median of its node" in line
            for line in lines
        )
        == 2
    )
    assert (
        sum(f"{GPUS[6]} is set up otherwise: PCIe lanes in use 4, and 16 on 15 of 15 others" in line for line in lines)
        == 2
    )


def test_healthy_nodes_pass(tmp_path: Path) -> None:
    ended = verified("--run", str(racks(tmp_path, NODES)))
    assert ended.exit_code == 0, ended.stdout
    assert "no node and no GPU stood out" in ended.stdout
    assert "no node stands out" in ended.stdout


def test_two_nodes_are_not_judged_but_their_gpus_are(tmp_path: Path) -> None:
    run = racks(tmp_path, {"n1": 1.0, "n2": 1.3})
    ended = verified("--run", str(run))
    assert ended.exit_code == 3
    assert "2 nodes: at least 4 are needed to tell which one is slow" in " ".join(ended.stdout.split())
    found = compared(run)
    assert {(finding.of, bool(finding.fleet.why_not)) for finding in found.fleets} == {("node", True), ("GPU", False)}


def test_runs_of_single_nodes_are_one_fleet_s_report(tmp_path: Path) -> None:
    """As a Slurm array, a Job of Kubernetes or cron leave them: a run a node, all in one folder."""
    runs = alone(tmp_path, {**NODES, "n4": 1.08})
    ended = verified("--run", *map(str, runs))
    assert ended.exit_code == 1, ended.stdout
    assert named(compared(*runs)) == {("node", "n4")}
    assert "the nodes were measured in different runs" in " ".join(ended.stdout.split())
    assert verified("--run", *map(str, runs[:3])).exit_code == 3


def test_a_copy_of_a_run_is_no_second_node(tmp_path: Path) -> None:
    run, *_ = alone(tmp_path, {"n1": 1.0})
    shutil.copytree(run, tmp_path / "copy")
    ended = verified("--run", str(run), str(tmp_path / "copy"))
    assert ended.exit_code == 2
    assert "hold the same run" in ended.output


def test_several_runs_need_the_option(tmp_path: Path) -> None:
    (run, *_) = alone(tmp_path, {"n1": 1.0})
    ended = verified(str(run))
    assert ended.exit_code == 2
    assert "--run" in ended.output


def test_a_run_of_an_older_release_names_no_host_and_its_gpus_are_compared_as_one_machine_s(tmp_path: Path) -> None:
    runs = [
        each_gpu_run(tmp_path / f"run-{at}", HEALTHY, numbers=range(4 * at, 4 * at + 4), seed=at) for at in range(4)
    ]
    assert {finding.of for finding in compared(*runs).fleets} == {"GPU"}


def test_nodes_and_gpus_are_told_as_json(tmp_path: Path) -> None:
    run = racks(tmp_path, {**NODES, "n3": 1.08})
    told = valid("verify", verified("--run", str(run), "--format", "json").stdout)
    nodes, gpus = ([finding for finding in told["fleets"] if finding["of"] == word] for word in ("node", "GPU"))
    assert len(nodes) == len(gpus) == len(WORKLOADS)
    assert nodes[0]["deviations"][0]["device"] == "n3"
    assert gpus[0]["spots"][GPUS[9]] == {"node": "n3", "index": 1}


@pytest.mark.parametrize("broken", [{"nodes": [{"node": "n1", "gpus": 7}]}, {"devices": [{"uuid": 1}]}])
def test_a_manifest_of_another_form_names_no_node(tmp_path: Path, broken: dict[str, Any]) -> None:
    from runner.results.store import RunStore
    from runner.verify.peer_comparison import placed

    run = RunStore(each_gpu_run(tmp_path / "run", HEALTHY, host=""))
    run.write_manifest({**run.manifest(), **broken})
    assert placed([run.folder]).spots == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time", "soon"), "--time: 'soon' is no time; say a number and s, m or h, such as 30m"),
        (("--nodes", "local:2", "--run", "x"), "--nodes says what to measure, and --run measures nothing"),
        (("--time", "5m", "--run", "x"), "--time says what to measure, and --run measures nothing"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...], said: str) -> None:
    ended = verified(*words)
    assert ended.exit_code == 2
    assert said in " ".join(str(ended.exception or ended.output).split()) + " ".join(ended.output.split())


@pytest.mark.parametrize("words", [("--nodes", "local:2"), ("--time", "5m")])
def test_nodes_and_time_are_for_comparing_gpus(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(app, ["verify", *words])
    assert "is for comparing GPUs with one another: add --each-gpu" in str(ended.exception or "") + ended.output


def test_the_terminal_shows_a_map_of_the_nodes(tmp_path: Path) -> None:
    run = racks(tmp_path, {**NODES, "n3": 1.08})
    markdown = tmp_path / "summary.md"
    printed = verified("--run", str(run), "--markdown", str(markdown)).stdout.splitlines()
    at = next(at for at, line in enumerate(printed) if line.startswith("node "))
    assert printed[at + 1].split()[:2] == ["n3", "+7.9!"] or printed[at + 1].split()[1].startswith(("+7.", "+8."))
    assert "```text" in markdown.read_text()
