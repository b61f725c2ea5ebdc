"""A GPU that NVML shows and CUDA cannot open: the run stops before its first cell. libcuda is a stand-in that answers with a number."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.engines.process import installed
from runner.errors import CannotBeginError
from runner.machine.devices import Gpu
from runner.nodes.node_agent import Agent, _Pipe
from runner.nodes.wire import Begin, Look
from runner.results import store
from runner.results.store import RunStore
from runner.run import execution
from tests.fixtures import stored, synthetic
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
@pytest.mark.parametrize("number", [100, 101, 802, 803, 804, 805, 999])
def test_a_run_whose_gpu_cannot_be_opened_measures_nothing_and_goes_on_after_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run = RunStore(tmp_path / "20261126-000000-abcd")
    monkeypatch.setenv("DLBENCH_CUINIT", str(number))
    with pytest.raises(CannotBeginError) as raised:
        execution.open_gpus("venv", [GPU], run.run_id)
    assert str(raised.value).startswith(f"NVIDIA H200 cannot be opened: cuInit says {number} CUDA_ERROR_")
    assert str(raised.value).endswith("; then say --resume 20261126-000000-abcd")
    monkeypatch.delenv("DLBENCH_CUINIT")
    execution.open_gpus("venv", [GPU], run.run_id)
    assert installed.opened(sys.executable, UUID) == ([UUID], "")


def test_a_run_whose_gpu_is_another_one_to_cuda_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "opened", lambda *_: (["GPU-1"], ""))
    with pytest.raises(
        CannotBeginError, match=f"the driver shows {UUID}, and CUDA opens GPU-1 instead; .* --resume run"
    ):
        execution.open_gpus("host", [GPU], "run")
    execution.open_gpus("docker", [GPU], "run")


def test_a_machine_whose_libcuda_lies_elsewhere_is_left_to_its_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "opened", lambda *_: ([], "libcuda.so.1: cannot open shared object file; start"))
    execution.open_gpus("venv", [GPU], "run")


def test_resuming_measures_a_repeat_again_that_found_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    run = RunStore(folder)
    assert store.due_again(folder) == set()
    failed = sorted(run.finished())[0]
    with_failure = {**stored.rows_of(folder, "cells", *failed)[0], "status": "failed", "error_kind": "no-device"}
    stored.change(folder, "cells", lambda row: with_failure if (row["cell_id"], row["repeat"]) == failed else row)
    before = run.finished()
    assert store.due_again(folder) == {failed}
    execution.clear_up(run)
    assert run.finished() == before - {failed}
    assert store.due_again(folder) == set()
    assert "1 repeat failed by a fault of the machine and will be measured again" in capsys.readouterr().err


@pytest.mark.usefixtures("driver")
def test_an_agent_whose_gpu_cannot_be_opened_refuses_before_its_first_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    prospect = SimpleNamespace(
        engine=SimpleNamespace(name="venv"),
        machine=SimpleNamespace(gpus=(GPU,)),
        options=SimpleNamespace(wait=None),
        jobs=(),
        boards=lambda jobs: [GPU.board],
    )
    agent = Agent(_Pipe(io.BytesIO()))
    monkeypatch.setattr(agent, "_look", lambda *_: prospect)
    agent.take(Look(node="n1", options={}))
    agent.take(Begin(run="20261126-000000-abcd", leased=True))
    monkeypatch.setenv("DLBENCH_CUINIT", "802")
    with pytest.raises(
        CannotBeginError, match="NVIDIA H200 cannot be opened: cuInit says 802 .*--resume 20261126-000000-abcd"
    ):
        agent.run()


@pytest.mark.parametrize(
    ("code", "interrupted", "no_gpu", "statuses", "ended"),
    [
        (1, False, True, [], 4),
        (1, False, True, ["no-device", "failed"], 4),
        (1, False, True, ["no-device", "ok"], 1),
        (1, False, False, ["failed"], 1),
        # A person who stops a run is told that, and not that a GPU is missing.
        (130, True, True, [], 130),
    ],
)
def test_a_run_that_no_gpu_was_opened_for_ends_with_4(
    code: int, interrupted: bool, no_gpu: bool, statuses: list[str], ended: int
) -> None:
    assert execution.exit_code(code, interrupted, no_gpu, statuses) == ended
