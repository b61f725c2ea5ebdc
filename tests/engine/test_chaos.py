"""What a run outlives: its containers killed, its engine restarted, its disk full, and itself killed."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from runner.catalog.frameworks import load_frameworks
from runner.engines.docker.engine import OWNER_LABEL
from tests.engine.gpu_runs import Run, ended, folder, nothing_is_left, rows, wait_for
from tests.fixtures.mounts import filled, tmpfs
from tests.stand_ins.engine import OwnEngine
from tests.stand_ins.fleet import FakeGpu, Fleet

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]


# Names of the catalog that have both of the workloads. The tiny runner has three images, and tf32 is for frameworks with a switch for it.
FRAMEWORKS = "torch,jax,tensorflow,keras_torch,keras_jax,mxnet_gluon,chainer,paddle,tinygrad,cntk"
PRECISIONS = [1 if load_frameworks()[name].no_tf32 else 2 for name in FRAMEWORKS.split(",")]
CELLS = 3 * 2 * sum(PRECISIONS)
SEED = 20


def test_chaos_costs_no_cell_its_row_and_leaves_nothing_behind(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    """Containers killed at random, the engine restarted, the disk full, the runner killed; then what is left is run."""
    Fleet(tuple(FakeGpu() for _ in range(8))).write(fleet_file)
    chance = random.Random(SEED)
    with tmpfs(tmp_path / "results", "size=96m") as disk:
        process = run("--precision", "fp32,tf32", DLBENCH_TINY_FRAMEWORKS=FRAMEWORKS)
        wait_for(lambda: rows_there(tmp_path) >= 10, process)
        killed = kill_some_containers(own, 4, chance, process)
        own.stop()
        own.start()
        wait_for(lambda: rows_there(tmp_path) >= 40, process)
        killed += kill_some_containers(own, 4, chance, process)
        with filled(disk):
            printed = ended(process)
            assert process.returncode == 1, printed
            assert "what had ended is kept" in printed

        kept = {path: path.stat().st_mtime_ns for path in folder(tmp_path).glob("repeats/*.parcel")}
        process = run("--resume", folder(tmp_path).name, DLBENCH_TINY_FRAMEWORKS=FRAMEWORKS)
        wait_for(lambda: rows_there(tmp_path) >= len(kept) + 20, process)
        process.kill()
        ended(process)
        process = run("--resume", folder(tmp_path).name, DLBENCH_TINY_FRAMEWORKS=FRAMEWORKS)
        wait_for(lambda: rows_there(tmp_path) >= CELLS - 40, process)
        killed += kill_some_containers(own, 4, chance, process)
        printed = ended(process)
        assert process.returncode in (0, 1), printed

        ran = rows(tmp_path).query("status != 'skipped'")
        assert len(ran) == len(set(ran.cell_id)) == CELLS, "every cell has exactly one row"
        assert {path: path.stat().st_mtime_ns for path in kept} == kept, "what had ended was run again"
        failed = ran[ran.status == "failed"]
        assert set(failed.error_kind) <= {"crash", "engine"}, set(failed.reason)
        assert len(failed) <= killed, ["only the killed containers' cells may have failed", *failed.reason]
        nothing_is_left(own, tmp_path)


def test_an_engine_that_freezes_longer_than_the_time_limit_fails_no_cell_and_an_interrupt_does_not_wait_for_it(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    Fleet((FakeGpu(), FakeGpu())).write(fleet_file)
    few = "torch,jax"
    process = run("--precision", "fp32", "--timeout", "4", "--repeats", "2", DLBENCH_TINY_FRAMEWORKS=few)
    wait_for(lambda: rows_there(tmp_path) >= 4, process)
    own.freeze()
    try:
        time.sleep(10)
    finally:
        own.thaw()
    before = rows_there(tmp_path)
    wait_for(lambda: rows_there(tmp_path) >= before + 4, process)
    own.freeze()
    try:
        # What runs by now ends, and the next calls of the engine hang.
        time.sleep(2)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        printed = ended(process)
        seconds = time.monotonic() - begin
    finally:
        own.thaw()
    ran = rows(tmp_path).query("status != 'skipped'")
    assert set(ran.status) == {"ok"}, ran.reason.dropna().tolist()
    assert "the engine does not answer" in printed
    # The report is written within that time too.
    assert seconds < 10
    process = run("--repeats", "2", "--resume", folder(tmp_path).name, DLBENCH_TINY_FRAMEWORKS=few)
    printed = ended(process)
    assert process.returncode == 0, printed
    nothing_is_left(own, tmp_path)


def rows_there(tmp_path: Path) -> int:
    return len(list((tmp_path / "results").glob("*/repeats/*.parcel")))


def kill_some_containers(own: OwnEngine, count: int, chance: random.Random, process: subprocess.Popen[str]) -> int:
    """Kill so many containers of a run at random, each at another moment; how many that were before the run ended."""
    killed = 0
    client = own.client()
    while killed < count and process.poll() is None:
        time.sleep(chance.uniform(0, 0.2))
        running = client.api.containers(filters={"label": OWNER_LABEL})
        with contextlib.suppress(Exception):  # it ended by itself meanwhile, or there was none
            client.api.kill(chance.choice(running)["Id"])
            killed += 1
    client.close()
    assert killed == count
    return killed
