"""`runner verify --each-gpu` over stored runs: its exit code is never 0 where a GPU is slow, nor 1 where only the machine drifted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.results.store import RunStore
from runner.verify import output
from runner.verify.outliers import fleet_of
from runner.verify.peer_comparison import levels, with_fleets
from runner.verify.verification import Verification, assess
from tests.fixtures import regimes, stored, synthetic
from tests.fixtures.fleets import WORKLOADS, each_gpu_run, uuids
from tests.fixtures.json_documents import valid
from tests.fixtures.regimes import Regime


def verified(*folders: Path) -> Any:
    words = [word for folder in folders for word in ("--run", str(folder))]
    variables = {"DLBENCH_REFERENCES": str(folders[0].parent), "COLUMNS": "200"}
    return CliRunner().invoke(app, ["verify", "--each-gpu", *words], env=variables)


def compared(*folders: Path) -> Verification:
    return with_fleets(assess(folders, []), folders)


def named(verification: Verification) -> list[str]:
    return sorted(slow.device for finding in verification.fleets for slow in finding.fleet.slow)


@pytest.mark.parametrize(
    ("true", "weak"),
    [([1.0, 1.012, 0.990, 1.095], 3), ([1.0, 1.004, 0.997, 1.002, 0.995, 1.07, 1.001, 1.003], 5)],
    ids=["4 GPUs, one 9.5 % slow", "8 GPUs, one 7 % slow"],
)
def test_the_weak_gpu_of_a_small_fleet_is_named_and_fails(true: list[float], weak: int, tmp_path: Path) -> None:
    run = each_gpu_run(tmp_path / "run", true)
    ended = verified(run)
    assert ended.exit_code == 1
    assert "FAIL: see the GPUs and the cells" in ended.stdout
    assert named(compared(run)) == [uuids("NVIDIA H200", 8)[weak]] * len(WORKLOADS)


def test_two_gpus_of_which_one_is_slow_do_not_pass_beside_four_that_are_alike(tmp_path: Path) -> None:
    alike = each_gpu_run(tmp_path / "a100", [1.0, 1.004, 0.997, 1.0], model="NVIDIA A100")
    pair = each_gpu_run(tmp_path / "h200", [1.0, 1.5])
    ended = verified(alike, pair)
    assert ended.exit_code == 3
    assert "open: nothing failed" in ended.stdout
    assert "the slowest takes 1.50 times as long as the fastest" in ended.stdout
    assert verified(alike).exit_code == 0
    assert verified(pair).exit_code == 3


def test_a_machine_that_gets_12_percent_faster_makes_no_gpu_slow(tmp_path: Path) -> None:
    drifting = Regime(process=0.002, windows=0.003, count=12, warming=0.12)
    assert verified(each_gpu_run(tmp_path / "run", [1.0] * 8, regime=drifting)).exit_code in (0, 3)


def simulated(slow: float, runs: int, warming: float) -> float:
    """The share of runs of 8 GPUs in which the first, which takes `slow` times as long, is the only one that is named; 1: none is."""
    random = np.random.default_rng(round(100 * slow))
    regime = Regime(process=0.01, warming=warming, count=12)
    right = 0
    for _ in range(runs):
        # Two workloads: the second fills the places between the GPUs of the first.
        times = regimes.run(random, regime, [slow, *[1.0] * 15], repeats=3)[:8]
        repeats = {
            f"GPU-{at}": {("run", number): float(np.median(windows)) for number, windows in enumerate(of_gpu)}
            for at, of_gpu in enumerate(times)
        }
        found = fleet_of(levels(repeats)[0], comparisons=2).slow
        right += [each.device for each in found] == (["GPU-0"] if slow > 1 else [])
    return right / runs


@pytest.mark.parametrize("warming", [0.0, 0.12])
def test_on_a_machine_that_gets_faster_a_slow_gpu_is_named_and_a_healthy_one_is_not(warming: float) -> None:
    assert simulated(1.0, 500, warming) >= 0.98
    assert simulated(1.1, 500, warming) >= 0.95


def test_alike_gpus_pass_and_the_output_says_what_was_shown(tmp_path: Path) -> None:
    ended = verified(each_gpu_run(tmp_path / "run", [1.0, 1.004, 0.997, 1.002]))
    assert ended.exit_code == 0
    assert "pass: no GPU stood out" in ended.stdout
    assert "as far as references decide" in ended.stdout
    assert "times as long would have been named in 95 of 100 such fleets" in " ".join(ended.stdout.split())
    assert "times as fast and the slowest" in ended.stdout


def test_the_rows_of_two_gpus_of_one_machine_do_not_look_alike(tmp_path: Path) -> None:
    run = each_gpu_run(tmp_path / "run", [1.0] * 4)
    names = [output.cells_of(finding)[0] for finding in assess([run], []).findings]
    assert len(set(names)) == len(names) == 2 * 4
    assert sum(f" on GPU …{uuids('NVIDIA H200', 1)[0][-4:]}" in name for name in names) == 2


def test_gpus_that_differ_too_much_to_tell_are_open(tmp_path: Path) -> None:
    ended = verified(each_gpu_run(tmp_path / "run", [0.96, 0.98, 1.0, 1.02, 1.04]))
    assert ended.exit_code == 3
    assert "the devices differ too much to tell" in ended.stdout
    assert "no GPU stood out" not in ended.stdout


@pytest.mark.parametrize(("slow", "faster"), [(4, 4), (5, 3)])
def test_two_groups_are_named_with_their_gpus_and_no_card_is_accused(slow: int, faster: int, tmp_path: Path) -> None:
    healthy = [1.0, 1.004, 0.997, 1.002][:faster]
    run = each_gpu_run(tmp_path / "run", [*healthy, *[1.10, 1.104, 1.097, 1.102, 1.101][:slow]])
    ended, said = verified(run), " ".join(verified(run).stdout.split())
    names = uuids("NVIDIA H200", 8)
    assert ended.exit_code == 3
    assert re.search(
        rf"the devices are two groups: {slow} take 1\.(09\d|1[01]) times as long as the other {faster}", said
    )
    assert f"the faster group: {', '.join(names[:faster])} the slower group: {', '.join(names[faster:])}" in said
    assert "more devices of the model would tell" not in said
    assert named(compared(run)) == []
    assert compared(run).fleets[0].fleet.groups == (tuple(names[:faster]), tuple(names[faster:]))


def test_an_accused_gpu_has_the_assumption_of_the_error_rate_beside_it(tmp_path: Path) -> None:
    said = " ".join(verified(each_gpu_run(tmp_path / "run", [1.0, 1.012, 0.990, 1.095])).stdout.split())
    assert "If healthy GPUs differ by 1.0 %, normally, that happens in 1.0 % of verifications of healthy fleets" in said


def test_the_comparison_says_how_long_and_how_hot_the_gpus_were_measured(tmp_path: Path) -> None:
    run = each_gpu_run(tmp_path / "run", [1.0, 1.004, 0.997, 1.002], celsius=61.0)
    (line,) = [line for line in output.details(compared(run)) if "hotter" in line]
    assert re.match(r"each repeat of a cell on a GPU measured \d+ s at most, at 61 °C at most: ", line)
    assert line.endswith("slow only when it is hotter; `--preset standard` measures longer")
    unknown = each_gpu_run(tmp_path / "other", [1.0] * 4)
    assert any("and no temperature was recorded" in line for line in output.details(compared(unknown)))


def test_a_cell_passes_by_its_own_fleet_only(tmp_path: Path) -> None:
    """The cells of one GPU are in no fleet of four, so nothing decides them."""
    alike = each_gpu_run(tmp_path / "run", [1.0, 1.004, 0.997, 1.002])
    alone = each_gpu_run(tmp_path / "other", [1.0], model="NVIDIA A100")
    both = compared(alike, alone)
    assert both.exit_code == 3
    judged = tuple(finding for finding in both.fleets if not finding.fleet.why_not)
    assert Verification(both.findings, judged).exit_code == 3


def test_gpus_of_different_runs_are_compared_and_the_drift_between_runs_is_told(tmp_path: Path) -> None:
    runs = [each_gpu_run(tmp_path / f"run-{at}", [1.0], numbers=[at], seed=at) for at in range(4)]
    found = compared(*runs)
    assert found.exit_code == 0
    assert sum("measured in different runs" in line for line in output.details(found)) == len(WORKLOADS)
    assert not any(
        "measured in different runs" in line
        for line in output.details(compared(each_gpu_run(tmp_path / "one", [1.0] * 4)))
    )


def test_a_gpu_that_is_not_compared_is_named_with_the_reason(tmp_path: Path) -> None:
    run = each_gpu_run(tmp_path / "run", [1.0] * 6)
    other = each_gpu_run(tmp_path / "other", [1.0], numbers=[7])
    store, names = RunStore(run), uuids("NVIDIA H200", 8)
    (entry,) = [
        entry
        for entry in store.manifest()["plan"]
        if (entry["workload"], entry["device_uuid"]) == (WORKLOADS[0], names[2])
    ]
    for repeat in (1, 2, 3):
        stored.write_repeat(store.folder, entry["id"], repeat, {"cells": [synthetic.failed_row(entry)]})
    (first, second) = compared(run, other).fleets
    assert (first.fleet.devices, second.fleet.devices) == (5, 6)
    alone = (
        f"not compared: {names[7]}: no repeat in a block that most of the GPUs share; measure it again with the others"
    )
    assert second.beside == (alone,)
    assert first.beside[0] == alone
    assert first.beside[1].startswith(f"not compared: {names[2]}: failed: ")


def test_every_comparison_of_a_verification_shares_the_false_alarms(tmp_path: Path) -> None:
    run = each_gpu_run(tmp_path / "run", [1.0, 1.004, 0.997, 1.002])
    two = [finding.fleet.limit for finding in compared(run).fleets]
    other = each_gpu_run(tmp_path / "other", [1.0, 1.004, 0.997, 1.002], model="NVIDIA A100")
    four = [finding.fleet.limit for finding in compared(run, other).fleets]
    pair = each_gpu_run(tmp_path / "pair", [1.0, 1.0], model="NVIDIA L4")
    assert len(two) == 2
    assert len(four) == 4
    assert min(limit or 0 for limit in four) > max(limit or 9 for limit in two)
    assert [finding.fleet.limit for finding in compared(run, pair).fleets if finding.fleet.limit] == two


def test_the_comparison_is_told_as_json(tmp_path: Path) -> None:
    run = each_gpu_run(tmp_path / "run", [1.0, 1.004, 0.997, 1.002])
    words = ["verify", "--each-gpu", "--run", str(run), "--format", "json"]
    told = valid("verify", CliRunner().invoke(app, words, env={"DLBENCH_REFERENCES": str(tmp_path)}).stdout)
    assert len(told["fleets"]) == 2
    for finding in told["fleets"]:
        assert finding["fleet"]["fastest"] < 1 < finding["fleet"]["slowest"]
        assert 0.05 < finding["fleet"]["named_from"] <= 0.10


def test_drift_from_block_to_block_changes_no_level() -> None:
    drifting = {"a": {("run", 1): 1.2, ("run", 2): 1.1}, "b": {("run", 1): 1.32, ("run", 2): 1.21}}
    times, shared = levels(drifting)
    assert shared
    assert times["b"] / times["a"] == pytest.approx(1.1)


def test_a_block_that_most_gpus_did_not_end_is_left_out() -> None:
    """An interrupted run ends in the middle of a block."""
    whole = {name: {("run", 1): 1.0, ("run", 2): 1.0} for name in "abcd"}
    whole["a"][("run", 3)] = 3.0
    times, shared = levels(whole)
    assert shared
    assert times == pytest.approx(dict.fromkeys("abcd", 1.0))


def test_a_repeat_that_one_gpu_lacks_does_not_move_it() -> None:
    """Block 2 is 10 % slower for all. Pooled without blocks, the GPU that lacks it would look 5 % faster."""
    times = {name: {("run", 1): 1.0, ("run", 2): 1.1} for name in "abcd"}
    del times["d"][("run", 2)]
    found, _ = levels(times)
    assert found["d"] == pytest.approx(found["a"])
