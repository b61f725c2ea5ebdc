"""What the runner learns of GPUs, with the real nvidia-ml-py on a stand-in library that presents any fleet."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.cli.machines import ranges
from runner.errors import UserError
from runner.machine import detect as detection
from runner.machine.detect import detect
from runner.machine.nvml import NVLINK
from runner.results.gpu_facts import clock_state
from tests.fixtures.json_documents import valid
from tests.stand_ins.fleet import FakeGpu, Fleet, eight_gpus, environment, uuid_of

Show = Callable[[Fleet], None]


def test_a_gpu_is_told_with_all_that_planning_needs(fleet: Show) -> None:
    cpus = f"0-{max(os.sched_getaffinity(0))}"
    fleet(Fleet((FakeGpu(numa=1, cpus=cpus, pcie_generation=5, pcie_width_now=8, ecc=0, used_bytes=1 << 30),)))
    (gpu,) = detect("all").gpus
    assert (gpu.index, gpu.uuid, gpu.model, gpu.compute_capability) == (0, uuid_of(0), "NVIDIA L4", "8.9")
    assert (gpu.memory_bytes, gpu.free_bytes) == (23 << 30, 22 << 30)
    assert (gpu.driver, gpu.cuda_driver) == ("580.82.07", "13.0")
    assert (gpu.numa_node, gpu.cpus) == (1, detect("none").cpu.cpus)
    assert (gpu.pci, gpu.pcie_generation, gpu.pcie_width, gpu.pcie_width_now) == ("00000000:01:00.0", 5, 16, 8)
    assert (gpu.ecc, gpu.persistence, gpu.power_limit_watts) == (False, True, 72.0)


def test_what_a_gpu_does_not_support_is_left_open(fleet: Show) -> None:
    fleet(Fleet((FakeGpu(ecc=None, persistence=None, power_limit_watts=None),)))
    (gpu,) = detect("all").gpus
    assert (gpu.ecc, gpu.persistence, gpu.power_limit_watts, gpu.mig) == (None, None, None, False)


def test_mig_instances_stand_in_the_place_of_their_gpu(fleet: Show) -> None:
    fleet(eight_gpus(os.getpid(), busy=()))
    gpus = detect("all").gpus
    assert [gpu.name for gpu in gpus] == ["0", "1", "2", "3:0", "3:1", "4", "5", "6", "7"]
    first, second = gpus[3], gpus[4]
    assert first.uuid.startswith("MIG-")
    assert first.uuid != second.uuid
    assert first.board == second.board == uuid_of(3)
    assert first.model == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert first.memory_bytes == 40 << 30
    assert [gpu.name for gpu in detect("3:1,4").gpus] == ["3:1", "4"]
    with pytest.raises(UserError, match="'3' names more than one GPU"):
        detect("3")


ONE = Fleet((FakeGpu(),))
OLD = FakeGpu("NVIDIA A100 MIG 1g.5gb", uuid=f"MIG-{uuid_of(0)}/7/0")


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (Fleet((FakeGpu(mig=1),)), "MIG is on and it is cut into no instance"),
        # Drivers before 470 give instances no UUIDs.
        (Fleet((FakeGpu("NVIDIA A100", mig=1, instances=(OLD,)),), driver="460.32.03"), "470 or newer"),
        (Fleet((FakeGpu(processes=f"{os.getpid()}:1"),)), "is in use by"),
        (replace(ONE, init_error=9), "Driver Not Loaded"),
        (replace(ONE, init_error=18), "version mismatch"),
    ],
    ids=["cut into nothing", "an old driver", "in use", "no driver", "two drivers"],
)
def test_a_machine_without_a_gpu_to_use_says_why(fleet: Show, shown: Fleet, why: str) -> None:
    fleet(shown)
    machine = detect("all")
    assert machine.gpus == ()
    assert why in str(machine.why_no_gpu)


@pytest.mark.parametrize("init_error", [999, 9, 18])
def test_a_driver_that_does_not_start_while_its_module_drives_gpus_is_a_machine_to_mend(
    fleet: Show, init_error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container after systemd took its devices: the CPU was measured in the GPU's place."""
    fleet(replace(ONE, init_error=init_error))
    driven = tmp_path / "driven"
    monkeypatch.setattr(detection, "_DRIVEN", driven)
    # Without a GPU that the module drives only two versions of the driver are surely a fault.
    assert detect("all").broken is (init_error == 18)
    (driven / "0000:17:00.0").mkdir(parents=True)
    machine = detect("all")
    assert (machine.gpus, machine.broken) == ((), True)
    assert not detect("none").broken


def test_a_gpu_on_the_bus_whose_module_is_not_loaded_is_a_machine_to_mend(
    fleet: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a new kernel, or where Secure Boot refuses the module: --gpus all measured the CPU."""
    fleet(replace(ONE, init_error=9))
    monkeypatch.setattr(detection, "pci_gpus", lambda vendor: int(vendor == "0x10de"))
    machine = detect("all")
    assert (machine.gpus, machine.broken) == ((), True)
    assert "Driver Not Loaded" in str(machine.why_no_gpu)
    monkeypatch.setattr(detection, "pci_gpus", lambda vendor: 0)
    assert not detect("all").broken


def test_a_gpu_that_somebody_uses_is_refused_and_its_user_named(fleet: Show) -> None:
    fleet(eight_gpus(os.getpid()))
    machine = detect("all")
    assert "7" not in {gpu.name for gpu in machine.gpus}
    (refused,) = machine.refused
    assert f"process {os.getpid()} of " in refused.reason
    assert "2.1 GB" in refused.reason
    assert "--share" in refused.reason
    assert "7" in {gpu.name for gpu in detect("all", share=True).gpus}


def test_a_gpu_that_fell_off_the_bus_does_not_hide_the_others(fleet: Show) -> None:
    two = Fleet((FakeGpu(), FakeGpu()))
    fleet(two)
    assert len(detect("all").gpus) == 2
    fleet(two.with_gpu(0, lost=1))
    machine = detect("all")
    assert [gpu.name for gpu in machine.gpus] == ["1"]
    assert [each.reason for each in machine.refused] == ["GPU 0 answers with an error (GPU is lost); it needs a reset"]


def test_nvlink_is_nearer_than_any_bus(fleet: Show) -> None:
    fleet(Fleet((FakeGpu(island="a"), FakeGpu(island="a"), FakeGpu(), FakeGpu(numa=1))))
    near = dict(detect("all").gpus[0].near)
    assert near[uuid_of(1)] == NVLINK > near[uuid_of(2)] > near[uuid_of(3)]


def runner_gpus(library: Path, file: Path, *options: str) -> str:
    command = [sys.executable, "-m", "runner", "gpus", *options]
    variables = environment(library, file) | {"COLUMNS": "250"}
    return subprocess.run(command, cwd=PROJECT, env=variables, capture_output=True, text=True, check=True).stdout


def test_runner_gpus_shows_a_table_and_what_joins_them(nvml_library: Path, tmp_path: Path) -> None:
    file = eight_gpus(os.getpid()).with_gpu(4, pcie_width_now=4).write(tmp_path / "fleet")
    shown = runner_gpus(nvml_library, file)
    assert uuid_of(0) in shown
    assert f"process {os.getpid()}" in shown
    assert "driver 580.82.07, which runs CUDA up to 13.0" in shown
    assert "GPU 0 is joined by NVLink to 1, 2" in shown
    assert "GPU 4 (NVIDIA L4) uses 4 of its 16 PCIe lanes" in shown


def test_runner_gpus_tells_a_script_the_same(nvml_library: Path, tmp_path: Path) -> None:
    told = valid("gpus", runner_gpus(nvml_library, eight_gpus(1).write(tmp_path / "fleet"), "--format", "json"))
    assert [gpu["uuid"] for gpu in told["gpus"]][:3] == [uuid_of(0), uuid_of(1), uuid_of(2)]
    assert told["gpus"][-1]["processes"][0]["pid"] == 1
    assert (told["refused_gpus"], told["why_no_gpu"]) == ([], None)


def test_numbers_are_written_as_linux_writes_sets() -> None:
    assert ranges((0, 1, 2, 8, 10, 11)) == "0-2,8,10-11"
    assert ranges(()) == ""


def test_what_clocks_and_power_are_set_to_is_told(fleet: Show) -> None:
    set_down = FakeGpu(application_sm_megahertz=1500, application_memory_megahertz=6251, compute_mode=3, vbios="9.8")
    fleet(Fleet((set_down, FakeGpu(), FakeGpu(max_sm_megahertz=None, vbios=None, compute_mode=None))))
    first, second, third = detect("all").gpus
    assert (first.default_power_limit_watts, first.vbios, first.compute_mode) == (72.0, "9.8", "exclusive process")
    assert (first.max_sm_megahertz, first.max_memory_megahertz) == (2040, 6251)
    assert (first.application_sm_megahertz, first.application_memory_megahertz) == (1500, 6251)
    assert clock_state(asdict(first)) == "application clock 1500 MHz, at most 2040 MHz"
    assert clock_state(asdict(second)) == "float, at most 2040 MHz"
    assert clock_state(asdict(replace(second, locked_sm_megahertz=1200))) == "locked at 1200 MHz"
    assert (third.vbios, third.compute_mode, clock_state(asdict(third))) == (None, None, "float")


def test_a_gpu_on_which_nobody_may_compute_is_refused_with_what_to_do(fleet: Show) -> None:
    fleet(Fleet((FakeGpu(compute_mode=2), FakeGpu())))
    machine = detect("all")
    assert [gpu.name for gpu in machine.gpus] == ["1"]
    (refused,) = machine.refused
    assert refused.reason.endswith("its compute mode is prohibited; `nvidia-smi -i 0 -c DEFAULT` allows programs on it")


def test_runner_gpus_shows_modes_and_clocks(nvml_library: Path, tmp_path: Path) -> None:
    fleet = Fleet((FakeGpu(compute_mode=3), FakeGpu()))
    shown = runner_gpus(nvml_library, fleet.write(tmp_path / "fleet"))
    assert "GPU 0 (NVIDIA L4): compute mode exclusive process" in shown
    assert "clocks of GPU 0, 1: float, at most 2040 MHz" in shown
