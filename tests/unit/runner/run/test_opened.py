"""A GPU that NVML shows and CUDA cannot open: the run stops before its first cell. libcuda is a stand-in that answers with a number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runner.engines.process import installed
from runner.machine.devices import Gpu
from runner.results.store import RunStore
from runner.run import execution
from runner.run.options import UsageError
from tests.stand_ins import fleet

UUID = "GPU-00000000-0000-0000-0000-000000000000"
GPU = Gpu(0, UUID, "NVIDIA H200", "9.0", 10**11, "580.65.06", (0,))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if fleet.compiler() is None:
        pytest.skip("left out, because there is no C compiler to make the stand-in for CUDA with")
    command = [str(fleet.compiler()), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", str(fleet.HERE / "cuda.c")]
    subprocess.run([*command, "-o", str(tmp_path / "libcuda.so.1")], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("number", [100, 101, 802, 803, 804, 999])
def test_a_run_whose_gpu_cannot_be_opened_measures_nothing_and_goes_on_when_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run = RunStore(tmp_path / "20261126-000000-abcd")
    monkeypatch.setenv("DLBENCH_CUINIT", str(number))
    with pytest.raises(UsageError) as raised:
        execution._open(GPU, run)
    assert str(raised.value).startswith(f"NVIDIA H200 cannot be opened: cuInit says {number} CUDA_ERROR_")
    assert str(raised.value).endswith("; then say --resume 20261126-000000-abcd")
    monkeypatch.delenv("DLBENCH_CUINIT")
    execution._open(GPU, run)
    assert installed.opened(sys.executable, UUID) == ([UUID], "")


def test_a_machine_whose_libcuda_lies_elsewhere_is_left_to_its_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "opened", lambda *_: ([], "libcuda.so.1: cannot open shared object file; start"))
    execution._open(GPU, RunStore(tmp_path / "run"))
