"""What the machine is found to have, and how GPUs are named."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from runner.catalog.images import PROJECT
from runner.errors import UserError
from runner.machine import detect as hardware
from runner.machine.detect import HardwareError, choose_gpus, detect, detect_cpu
from runner.machine.devices import Gpu, same_gpus
from runner.machine.nvml import NvmlError

FIRST = Gpu(0, "GPU-aa11", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0,))
SECOND = replace(FIRST, index=1, uuid="GPU-aa22")


def test_the_cpu_has_a_model_memory_and_only_processors_that_this_process_may_use() -> None:
    cpu = detect_cpu()
    assert cpu.model
    assert 1 << 28 < cpu.memory_bytes < 1 << 50
    assert cpu.cpus
    assert set(cpu.cpus) <= os.sched_getaffinity(0)


def test_gpus_of_amd_are_counted_and_said_to_be_of_no_use_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A display controller, an accelerator without a display, AMD's audio beside them, and a display controller of Intel's.
    for name, vendor, kind in [
        ("a", "0x1002", "0x030000"),
        ("b", "0x1002", "0x120000"),
        ("c", "0x1002", "0x040300"),
        ("d", "0x8086", "0x030000"),
    ]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "e").mkdir()
    assert hardware.pci_gpus("0x1002", tmp_path) == 2
    monkeypatch.setattr(
        hardware.nvml, "discover", Mock(side_effect=NvmlError("there is no NVIDIA driver on this machine"))
    )
    monkeypatch.setattr(hardware, "pci_gpus", lambda _: 2)
    said = "there is no NVIDIA driver on this machine, and nothing here computes on its 2 AMD GPUs (docs/images.md)"
    assert detect("all").why_no_gpu == said
    monkeypatch.setattr(hardware, "pci_gpus", lambda _: 0)
    assert detect("all").why_no_gpu == "there is no NVIDIA driver on this machine"


def test_the_affinity_mask_of_the_runner_holds_for_its_cells() -> None:
    one = min(os.sched_getaffinity(0))
    script = "from runner.machine.detect import detect_cpu; print(*detect_cpu().cpus)"
    ended = subprocess.run(
        ["taskset", "-c", str(one), sys.executable, "-c", script],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == [str(one)]


def test_gpus_that_were_not_asked_for_are_not_looked_for() -> None:
    machine = detect("none")
    assert machine.gpus == ()
    assert machine.why_no_gpu == "GPUs were excluded by --gpus none"


def test_a_machine_without_gpus_says_why_in_a_clause() -> None:
    machine = detect("all")
    if machine.gpus:
        pytest.skip("this machine has a GPU")
    assert machine.why_no_gpu
    assert "\n" not in machine.why_no_gpu
    with pytest.raises(HardwareError, match="--gpus 0: .*; say --gpus none"):
        detect("0")


def test_gpus_are_named_by_index_or_by_the_beginning_of_their_uuid() -> None:
    assert choose_gpus([FIRST, SECOND], ["1"]) == (SECOND,)
    assert choose_gpus([FIRST, SECOND], ["gpu-AA11", "0"]) == (FIRST,)
    assert choose_gpus([FIRST, SECOND], ["aa2", " 0"]) == (SECOND, FIRST)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [("2", "'2' names no GPU; there are 0"), ("GPU-aa", "more than one GPU"), ("", "'' names no")],
)
def test_a_gpu_that_is_not_there_or_not_unique_is_refused(asked: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        choose_gpus([FIRST, SECOND], [asked])


def test_frameworks_may_write_a_uuid_in_their_own_way() -> None:
    assert same_gpus(["AA11", "gpu-aa22"], ["GPU-aa22", "GPU-aa11"])
    assert not same_gpus(["aa11"], ["GPU-aa22"])
    assert not same_gpus(["aa11"], ["GPU-aa11", "GPU-aa22"])
