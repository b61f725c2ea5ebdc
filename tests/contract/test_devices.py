"""Two devices compute what one does: the canonical batch shared between them against the same reference, in the images' own environments.

On a machine without GPUs they are two processes or two virtual devices. Two frameworks go through it always, one of each form; every
framework and workload with DLBENCH_DEVICES=all.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bench.ranks import ASIDE
from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import PROJECT, load_catalog
from runner.catalog.workloads import adapters, load_workloads
from runner.engines.process.venv import VenvEngine
from tests.fixtures.waiting import wait_for

pytestmark = pytest.mark.slow

ALWAYS = {("torch", "cnn-cifar10"), ("jax", "gru-imdb")}

CASES = [
    pytest.param(image.name, framework, workload.name, id=f"{image.name}-{framework}-{workload.name}")
    for image in load_catalog().values()
    if image.accelerator == "cpu" and image.untested is None
    for framework in image.frameworks
    if load_frameworks()[framework].parallel
    for workload in load_workloads().values()
    if workload.task == "train" and workload.computes is None and (framework, workload.module) in adapters()
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("image_name", "framework", "workload"), CASES)
def test_two_devices_agree_with_one(image_name: str, framework: str, workload: str, tmp_path: Path) -> None:
    if (framework, workload) not in ALWAYS and os.environ.get("DLBENCH_DEVICES") != "all":
        pytest.skip("two devices are checked in one framework of each form; DLBENCH_DEVICES=all checks the rest")
    image = load_catalog()[image_name]
    engine = VenvEngine()
    if reason := engine.unfit(image):
        pytest.skip(f"no environment for {image_name}: {reason}")
    command = [*engine.prepare(image, print).command[:1], "-m", "bench", "check", workload]
    command += ["--framework", framework, "--devices", "2"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "DLBENCH_CACHE": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.stdout.count("\n") == 1, f"the adapter printed into the stream, or died: {ended.stderr[-2000:]}"
    verdict = json.loads(ended.stdout)
    assert verdict["failed"] == []
    assert (verdict["devices"], verdict["compared"] >= 14) == (2, True)
    assert ended.returncode == 0


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    os.environ.get("DLBENCH_DEVICES") != "all", reason="left out: DLBENCH_DEVICES=all kills a rank of MPI"
)
def test_a_rank_that_is_killed_under_the_real_mpiexec_is_told_with_its_signal(tmp_path: Path) -> None:
    image, engine = load_catalog()["chainer-7.8.1-cpu"], VenvEngine()
    if reason := engine.unfit(image):
        pytest.skip(f"no environment for {image.name}: {reason}")
    command = [*engine.prepare(image, print).command[:1], "-m", "bench", "run", "cnn-cifar10", "--framework", "chainer"]
    command += ["--devices", "2", "--device", "cpu", "--preset", "quick"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "DLBENCH_CACHE": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as cell:
        wait_for(lambda: ranks_of(cell.pid, "1"))
        os.kill(ranks_of(cell.pid, "1")[0], signal.SIGKILL)
        printed, log = cell.communicate(timeout=120)
    events = [json.loads(line) for line in printed.splitlines()]
    assert [event["event"] for event in events[-2:]] == ["error", "end"]
    # mpiexec kills the other one, and may name that one.
    assert events[-2]["message"].startswith(("rank 1 of 2: ", "one of 2 processes of MPI: "))
    assert events[-2]["message"].endswith(": it was ended by signal 9 (SIGKILL)")
    assert "BAD TERMINATION" in log
    assert cell.returncode == 1


def ranks_of(parent: int, rank: str) -> list[int]:
    """The processes below one that are this rank of MPI and have left their number in the system."""
    found = []
    for process in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            variables = process.environ()
            told = Path(variables.get(ASIDE, ""), f"process-{process.pid}")
            if variables.get("PMI_RANK") == rank and told.is_file():
                found.append(process.pid)
    return found


def test_tensorflow_makes_each_part_of_a_batch_on_the_device_that_computes_on_it(
    run_in: Callable[[str, str], str],
) -> None:
    parts = json.loads(run_in("tensorflow-2.21.0-cpu", "parted_batch.py"))
    assert parts == [["device:CPU:0", [0.0, 1.0]], ["device:CPU:1", [2.0, 3.0]]]
