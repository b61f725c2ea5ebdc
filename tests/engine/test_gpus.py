"""The whole way over GPUs that are not there: the real runner, the real nvidia-ml-py and a real Docker Engine of the tests' own, on
stand-ins for NVML and for NVIDIA's hook.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from runner.engines.base import Launch, ReadyImage, Slot
from runner.engines.docker import engine as docker_engine
from runner.results import store
from runner.run.attempt import arguments
from tests.engine import tiny_runner
from tests.engine.gpu_runs import Run, ended, folder, nothing_is_left, rows, wait_for
from tests.fixtures.plans import make_cell
from tests.stand_ins.engine import OwnEngine
from tests.stand_ins.fleet import FakeGpu, Fleet, eight_gpus, uuid_of

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.xdist_group("own engine"), pytest.mark.timeout(600)]

# Debian's number of the group `video`, which drivers give to device nodes.
VIDEO = 44

H100, H100_SLICE, L4 = "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "NVIDIA L4"


def test_every_plannable_cell_runs_on_its_own_gpus_and_the_rest_says_why_not(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "600"]) as somebody:
        eight_gpus(somebody.pid).write(fleet_file)
        process = run("--gpus", "all", "--frameworks", "torch", "--repeats", "2", "--devices", "1,2,4")
        printed = ended(process)
        somebody.kill()
    assert process.returncode == 0, printed
    cells = rows(tmp_path)
    ran = cells[cells.status != "skipped"]
    assert set(ran.status) == {"ok"}

    # two workloads and two repeats of: cu118 on L4 only; the others on all; two H100 together, two L4 together
    count = ran.groupby(["device_model", "devices"]).size().to_dict()
    assert count == {(H100, 1): 8, (H100, 2): 8, (H100_SLICE, 1): 8, (L4, 1): 12, (L4, 2): 12}
    slices, used = {uuid_of(8, "MIG"), uuid_of(9, "MIG")}, set()
    for row in ran.itertuples():
        assert sorted(row.device_uuids) == sorted(row.given_uuids)
        assert len(row.given_uuids) == row.devices
        used |= set(row.given_uuids)
    assert used <= {*(uuid_of(place) for place in (0, 1, 2, 4, 5, 6)), *slices}
    assert {uuid_of(7), uuid_of(3)}.isdisjoint(used)

    reasons = cells[cells.status == "skipped"].groupby(["device_model", "devices"]).reason.agg(set).to_dict()
    assert any("compute capability 9.0" in reason for reason in reasons[H100, 1])
    assert reasons[L4, 4] == {f"it takes 4 GPUs, and of {L4} there are 3 to use"}
    assert any("MIG instances cannot work together" in reason for reason in reasons[H100_SLICE, 2])
    assert f"process {somebody.pid}" in printed
    nothing_is_left(own, tmp_path)


def test_an_old_driver_leaves_out_what_needs_a_newer_one(run: Run, fleet_file: Path, tmp_path: Path) -> None:
    replace(eight_gpus(0, busy=()), driver="535.104.05").write(fleet_file)
    printed = ended(run("--gpus", "4,5", "--frameworks", "torch"))
    cells = rows(tmp_path)
    assert set(cells[cells.status == "ok"].image) == {"tiny-cu118", "tiny-cu128"}, printed
    (reason,) = set(cells[cells.image == "tiny-cu130"].reason)
    assert reason == "the NVIDIA driver is 535.104.05, and the image's CUDA 13.0 needs 580.65.06 or newer"


def test_telemetry_of_the_cells_own_gpu_lies_beside_its_samples(run: Run, fleet_file: Path, tmp_path: Path) -> None:
    hot = FakeGpu(power_watts=250.0, throttle=0x40, celsius=91)
    Fleet((hot, FakeGpu())).write(fleet_file)
    ended(run("--each-gpu", "--frameworks", "torch", "--workloads", "gru-imdb", "--images", "tiny-cu128"))
    cells, telemetry = rows(tmp_path), store.read([folder(tmp_path)], "telemetry").to_pandas()
    ran = cells[cells.status == "ok"].set_index("device_uuid")
    assert set(ran.index) == {uuid_of(0), uuid_of(1)}
    samples = store.read([folder(tmp_path)], "samples").to_pandas().query("stage == 'steady'")
    for uuid, watts in ((uuid_of(0), 250.0), (uuid_of(1), 60.0)):
        of_cell = telemetry[telemetry.cell_id == ran.loc[uuid].cell_id]
        assert set(of_cell.device) == {uuid, "cpu"}
        seconds = samples[samples.cell_id == ran.loc[uuid].cell_id]
        assert of_cell.seconds.min() < seconds.begin_seconds.max()
        assert ran.loc[uuid].mean_power_watts == pytest.approx(watts, rel=0.03)
        assert ran.loc[uuid].joules_per_item == pytest.approx(ran.loc[uuid].energy_joules / seconds["items"].sum())
        assert ran.loc[uuid].energy_source == "counter"
    assert bool(ran.loc[uuid_of(0)].throttled)
    assert list(ran.loc[uuid_of(0)].throttled_by) == ["hardware thermal slowdown"]
    assert ran.loc[uuid_of(0)].max_temperature_celsius == 91
    assert not bool(ran.loc[uuid_of(1)].throttled)


def test_a_container_that_got_another_gpu_fails_its_cell(run: Run, fleet_file: Path, tmp_path: Path) -> None:
    file = Fleet((FakeGpu(), FakeGpu())).write(fleet_file)
    file.write_text(file.read_text() + f"hook_gives {uuid_of(1)}\n")
    process = run("--gpus", "0", "--frameworks", "torch", "--workloads", "gru-imdb", "--images", "tiny-cu128")
    printed = ended(process)
    assert process.returncode == 1, printed
    (row,) = rows(tmp_path).query("status == 'failed'").itertuples()
    assert row.error_kind == "wrong-device"
    assert row.reason == f"it ran on {uuid_of(1)} and was given {uuid_of(0)}"
    assert "runner doctor" in row.hint


def test_the_hooks_own_refusal_is_the_row_and_has_a_hint(run: Run, fleet_file: Path, tmp_path: Path) -> None:
    file = Fleet((FakeGpu(),)).write(fleet_file)
    file.write_text(file.read_text() + "hook_error initialization error: nvml error: driver/library version mismatch\n")
    ended(run("--frameworks", "torch", "--workloads", "gru-imdb", "--images", "tiny-cu128"))
    (row,) = rows(tmp_path).query("status == 'failed'").itertuples()
    assert row.error_kind == "engine"
    assert "driver/library version mismatch" in row.reason
    assert "restart the machine" in row.hint


@pytest.mark.parametrize(
    ("seed", "kind", "words", "hint"),
    [("66", "crash", "SIGSEGV", "native code crashed"), ("68", "crash", "exit code 1", "no code for this GPU")],
)
def test_a_cells_failure_is_a_row_with_the_end_of_its_log_and_a_hint(
    run: Run, fleet_file: Path, tmp_path: Path, seed: str, kind: str, words: str, hint: str
) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    ended(run("--seed", seed, "--frameworks", "torch", "--workloads", "gru-imdb", "--images", "tiny-cu128"))
    (row,) = rows(tmp_path).query("status == 'failed'").itertuples()
    assert row.error_kind == kind
    assert words in row.reason
    assert hint in row.hint


def test_a_hanging_cell_is_ended_and_its_stack_is_in_the_row(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    options = ["--frameworks", "torch", "--workloads", "gru-imdb", "--images", "tiny-cu128"]
    ended(run("--seed", "67", "--timeout", "2", *options))
    (row,) = rows(tmp_path).query("status == 'failed'").itertuples()
    assert (row.error_kind, row.reason) == ("time-limit", "it had not ended after 2 s and was stopped")
    assert 'File "tiny.py", line 7 in wait' in row.log_tail
    assert "stack" in row.hint
    nothing_is_left(own, tmp_path)


def test_a_lost_gpus_cells_go_to_its_twin(run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path) -> None:
    two = Fleet((FakeGpu(), FakeGpu()))
    two.write(fleet_file)
    process = run("--frameworks", "torch", "--repeats", "4")
    wait_for(lambda: len(list((tmp_path / "results").glob("*/repeats/*.parcel"))) >= 4, process)
    two.with_gpu(0, lost=1).write(fleet_file)
    printed = ended(process)
    assert process.returncode == 0, printed
    ran = rows(tmp_path).query("status != 'skipped'")
    assert set(ran.status) == {"ok"}
    assert len(ran) == 3 * 2 * 4
    assert json.loads((folder(tmp_path) / "run.json").read_bytes())["devices_lost"] == [uuid_of(0)]
    assert len(ran[[uuid_of(1) in row for row in ran.given_uuids]]) > 12
    nothing_is_left(own, tmp_path)


def test_when_every_gpu_is_lost_each_cell_says_so(run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path) -> None:
    one = Fleet((FakeGpu(),))
    one.write(fleet_file)
    process = run("--frameworks", "torch")
    wait_for(lambda: bool(list((tmp_path / "results").glob("*/repeats/*.parcel"))), process)
    one.with_gpu(0, lost=1).write(fleet_file)
    printed = ended(process)
    assert process.returncode == 1, printed
    ran = rows(tmp_path).query("status != 'skipped'")
    assert len(ran) == 6
    assert set(ran.query("status == 'failed'").error_kind) == {"gpu-lost"}
    nothing_is_left(own, tmp_path)


def test_a_second_runner_on_the_same_gpu_is_told_who_has_it(run: Run, fleet_file: Path, tmp_path: Path) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    first = run("--frameworks", "torch", "--repeats", "3")
    wait_for(lambda: bool(list((tmp_path / "leases").glob("*"))), first)
    second = run("--frameworks", "torch", "--no-wait")
    printed = ended(second)
    assert second.returncode == 4
    assert f"is held by another runner (process {first.pid}" in printed
    first.send_signal(signal.SIGINT)
    ended(first)


def test_a_cell_in_a_container_is_proved_by_its_process_on_the_gpu(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    slow = own.make_tiny_image(pace_milliseconds=25)  # 6 s
    chosen = ("--frameworks", "torch", "--workloads", "gru-imdb", "--images", "tiny-cu128", "--precision", "fp32")
    process = run(*chosen, "--seed", "71034", DLBENCH_TINY=slow)

    def cells() -> list[int]:
        return [
            each.pid
            for each in psutil.process_iter(["cmdline"])
            if (words := each.info["cmdline"]) and words[0] == "/cell" and "71034" in words
        ]

    wait_for(lambda: bool(cells()), process, 120)
    Fleet((FakeGpu(processes=f"{cells()[0]}:{1 << 30}"),)).write(fleet_file)
    printed = ended(process)
    (row,) = rows(tmp_path).query("status == 'ok'").to_dict("records")
    assert row["device_proof"] == "proved by NVML", printed
    assert list(row["foreign_processes"]) == []


def test_clocks_that_a_run_locked_are_set_back_after_ctrl_c(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    notes = fleet_file.with_name(f"{fleet_file.name}.clocks")
    process = run("--lock-clocks", "1500", "--frameworks", "torch", DLBENCH_TINY=own.make_tiny_image(90))

    def recorded() -> bool:
        """The run records the lock a moment after it was made."""
        runs = tmp_path.glob("results/*/run.json")
        return notes.exists() and any('"locked_sm_megahertz": 1500' in path.read_text() for path in runs)

    wait_for(recorded, process, 120)
    process.send_signal(signal.SIGINT)
    printed = ended(process)
    assert notes.read_text().splitlines() == ["0 1500 1500", "0 reset"], printed
    (device,) = store.RunStore(folder(tmp_path)).manifest()["devices"]
    assert device["locked_sm_megahertz"] == 1500
    nothing_is_left(own, tmp_path)


def test_nothing_of_this_reaches_the_machines_own_engine(own: OwnEngine) -> None:
    assert own.url != os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")


def test_a_gpu_cell_is_in_the_group_of_device_nodes_that_not_everybody_may_open(
    own: OwnEngine, tiny: str, fleet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fleet((FakeGpu(),)).write(fleet_file)
    monkeypatch.setenv("DOCKER_HOST", own.url)
    # This machine has no such nodes; tests/unit reads the groups of files that stand in for them.
    monkeypatch.setattr(docker_engine, "device_groups", lambda info: [VIDEO])
    engine = docker_engine.DockerEngine()
    assert engine.unavailable() is None
    prepared = ReadyImage(tiny_runner.images()["tiny-cu128"], tiny, ("/cell",))
    slot = Slot("cuda", (uuid_of(0),), (), None)
    cell = make_cell(device_kind="cuda", device_model=L4)
    running = engine.start(Launch(prepared, arguments(cell), slot, "groups", tmp_path / "cache"))
    try:
        # The engine is asked for it beside the reader, so it may take a moment.
        end = time.monotonic() + 30
        while running.pid() is None and time.monotonic() < end:
            time.sleep(0.05)
        status = Path(f"/proc/{running.pid()}/status").read_text()
    finally:
        running.stop()
        running.wait()
    (groups,) = (line.split()[1:] for line in status.splitlines() if line.startswith("Groups:"))
    assert str(VIDEO) in groups
    nothing_is_left(own, tmp_path)
