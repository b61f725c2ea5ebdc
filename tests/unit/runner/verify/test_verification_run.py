"""The measurements of `runner verify`: ceilings in the slot of a cell, with its leases, and no longer than it said."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.catalog.images import load_catalog
from runner.catalog.workloads import load_workloads
from runner.engines.base import Engine, EngineError, Slot
from runner.errors import ExitCode
from runner.machine import lease
from runner.machine.devices import Cpu, Gpu, Machine
from runner.plan.durations import Durations
from runner.plan.plan import Plan
from runner.results.store import RunStore
from runner.run.dispatch import places
from runner.run.options import Options
from runner.run.prospect import Prospect
from runner.run.schedule import slot_of
from runner.run.summary import Conclusion
from runner.verify import verification_run
from runner.verify.probes.ceilings import CeilingsError
from tests.fixtures import synthetic
from tests.fixtures.plans import make_cell

# The end of a run of which nothing is left.
WHOLE = Conclusion(ExitCode.OK, ExitCode.OK)


def test_the_probe_gets_the_part_of_the_machine_that_a_cell_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its ceiling is of more CPUs and memory than any cell has."""
    gpus = tuple(
        Gpu(at, f"GPU-{at}", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0, 1, 2, 3), f"GPU-{at}") for at in range(2)
    )
    machine = Machine(Cpu("a CPU", (0, 1, 2, 3), 8 << 30), gpus, None)
    slots: list[Slot] = []

    def probe(engine: Any, prepared: Any, framework: str, precision: str, slot: Slot, *rest: Any) -> Any:
        slots.append(slot)
        raise CeilingsError("the toy has none")

    monkeypatch.setattr(verification_run, "measure", probe)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cell = make_cell(device_kind="cuda", device_model="NVIDIA L4")
    engine = SimpleNamespace(prepare=lambda image, say: None)
    prospect: Any = SimpleNamespace(
        plan=SimpleNamespace(cells=[cell]), machine=machine, engine=engine, images={cell.image: None}
    )
    verification_run._measure_ceilings(prospect, RunStore(tmp_path / "run"))
    (slot,) = slots
    assert slot == slot_of(machine, places(machine, "cuda")[:1])
    assert (slot.device_uuids, slot.cpus) == (("GPU-0",), (0, 1))
    assert slot.memory_bytes is not None


@pytest.mark.parametrize(
    ("image", "against", "is_beside"),
    [
        ("torch-2.13.0-cpu", "nearest", True),
        ("host-torch-2.12.0", "nearest", False),
        ("docker:mine:1", "nearest", False),
        ("torch-2.13.0-cpu", "none", False),
    ],
)
def test_a_pinned_image_that_cannot_be_made_ends_nothing_and_an_installation_that_cannot_run_does(
    tmp_path: Path, image: str, against: str, is_beside: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(image: object, say: object) -> None:
        raise EngineError("no network\nand a log")

    cell = replace(make_cell(), image=image)
    engine = SimpleNamespace(prepare=refuse)
    options = SimpleNamespace(against=against)
    machine = Machine(Cpu("a CPU", (0, 1), 8 << 30), (), "none")
    prospect: Any = SimpleNamespace(
        plan=SimpleNamespace(cells=[cell]), machine=machine, engine=engine, images={cell.image: None}, options=options
    )
    if not is_beside:
        with pytest.raises(EngineError, match="no network"):
            verification_run._measure_ceilings(prospect, RunStore(tmp_path / "run"))
        return
    verification_run._measure_ceilings(prospect, RunStore(tmp_path / "run"))
    assert f"{cell.image}: no network: nothing is measured beside the installation" in capsys.readouterr().err


def test_the_probe_of_a_gpu_waits_for_its_lease_and_is_ended_by_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It computes as a cell does: beside another runner's cell both would be measured wrong."""
    monkeypatch.setenv(lease.VARIABLE, str(tmp_path / "leases"))
    gpu = Gpu(0, "GPU-0", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0,))
    run = RunStore(tmp_path / "run")
    job: Any = SimpleNamespace(cell=SimpleNamespace(device_kind="cuda"), key=("cell", 1))
    prospect: Any = SimpleNamespace(
        jobs=[job], leased=lambda jobs: [gpu.board] if jobs == [job] else [], jobs_left=lambda run: [job]
    )
    monkeypatch.setattr(verification_run, "start", lambda options, argv: (prospect, run))
    monkeypatch.setattr(verification_run, "announce", lambda prospect: None)
    monkeypatch.setattr(verification_run, "_seconds", lambda prospect: 60.0)
    monkeypatch.setattr(verification_run, "execute", lambda prospect, run, write_report, ends_at: WHOLE)
    held: list[bool] = []
    monkeypatch.setattr(
        verification_run,
        "_measure_ceilings",
        lambda prospect, run: held.append(lease._try(lease.path_of("GPU-0")) is None),
    )
    options = verification_run.Options(wait=False)
    verification_run.measure_here(options, [], lambda folder: folder)
    assert held == [True]
    with lease.hold(["GPU-0"], "another", print), pytest.raises(lease.LeaseError, match="GPU-0 is held"):
        verification_run.measure_here(options, [], lambda folder: folder)
    assert held == [True]


def test_the_time_of_level_3_is_said_first_and_holds_further_repeats_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each pass gets the same end, and a pass that its end cut is the last one."""
    monkeypatch.setenv(lease.VARIABLE, str(tmp_path / "leases"))
    cell, other = make_cell(), make_cell(workload="cnn-cifar10")
    prospect = Prospect(
        Options(out=tmp_path), Machine(Cpu("a CPU", (0, 1), 8 << 30), (), "none"), cast(Engine, SimpleNamespace(name="venv")),
        "", load_catalog(), Plan((cell, other), ()), Durations(load_workloads(), {}),
    )  # fmt: skip
    run = RunStore(synthetic.make_run(tmp_path / "run"))
    passes: list[tuple[int, float]] = []
    left: list[list[object]] = [[], [], [object()]]

    def execute(prospect: Prospect, run: RunStore, write_report: object, ends_at: float) -> Conclusion:
        passes.append((prospect.repeats, ends_at))
        return WHOLE

    monkeypatch.setattr(Prospect, "jobs_left", lambda self, run: left[len(passes) - 1])
    monkeypatch.setattr(verification_run, "start", lambda options, argv: (prospect, run))
    monkeypatch.setattr(verification_run, "_seconds", lambda prospect: 0.01)
    monkeypatch.setattr(verification_run, "_measure_ceilings", lambda prospect, run: None)
    monkeypatch.setattr(verification_run, "execute", execute)
    wanted = {cell.id: 9, other.id: 27}
    began = time.monotonic()
    verification_run.measure_here(Options(out=tmp_path), [], lambda folder: folder, further=lambda folder: wanted)
    assert [repeats for repeats, _ in passes] == [7, 9, 27]
    (end,) = {ends_at for _, ends_at in passes}
    assert end - began == pytest.approx(verification_run.AT_MOST * 0.01, abs=1.0)
    said = capsys.readouterr().err
    assert "level 3: about 0 s with all that comes before the cells, and at most 0 s" in said
    assert "the time that was said is over" in said
