"""The ten minutes of a GPU machine, by the estimates: fp32 and the mixed precision that its GPUs are bought for, in three frameworks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import load_catalog
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA
from runner.catalog.workloads import load_workloads
from runner.engines.base import Engine
from runner.machine import detect
from runner.machine.devices import Machine
from runner.plan.durations import Durations
from runner.plan.plan import plan
from runner.plan.request import Request
from runner.run import begin
from runner.run.budget import Forecast, forecast
from runner.run.options import Options
from runner.run.prospect import Prospect
from tests.fixtures.plans import CPU, H200, with_gpu


def held(machine: Machine, ready: bool) -> Forecast:
    """The ten minutes of the real catalog on this machine. Images that are not ready take what they are guessed to."""
    images, workloads = load_catalog(), load_workloads()
    options = Options(out=Path(), precisions=("fp32", *begin._tensor_core_precision(machine)), seed=1)
    request = Request(precisions=options.precisions, modes=options.modes)
    planned = plan(request, list(images.values()), workloads, load_frameworks(), machine, lambda _: None)
    engine = cast(Engine, SimpleNamespace(cost=lambda image: 0 if ready else image.download_bytes))
    prospect = Prospect(options, machine, engine, "", images, planned, Durations(workloads, {}))
    return forecast(prospect.agenda(), prospect.jobs, minutes=10)


def test_ten_minutes_on_eight_gpus_hold_both_precisions_of_the_three_frameworks_three_times() -> None:
    machine = Machine(CPU, tuple(replace(H200, index=at, uuid=f"GPU-{at}", board=f"GPU-{at}") for at in range(8)), None)
    spans = held(machine, ready=True).spans
    repeats = Counter((at.job.cell.framework, at.job.cell.workload, at.job.cell.precision) for at in spans)
    for framework in FIRST_FRAMEWORKS:
        for workload in ROSETTA:
            for precision in ("fp32", "amp-bf16"):
                assert repeats[framework, workload, precision] >= 3, (framework, workload, precision)
    # Eight GPUs measure for more than nine tenths of the time until the last cell ends.
    end = max(at.end for at in spans)
    assert sum(at.end - at.begin for at in spans) > 0.9 * 8 * end


def test_ten_minutes_on_one_gpu_begin_with_fp32_of_the_three_frameworks() -> None:
    spans = held(with_gpu(), ready=True).spans
    first = [at.job.cell for at in sorted(spans, key=lambda at: at.begin)][:6]
    assert {(cell.framework, cell.precision) for cell in first} == {(name, "fp32") for name in FIRST_FRAMEWORKS}


@pytest.mark.parametrize(
    ("capability", "precisions"), [("9.0", ["amp-bf16"]), ("8.0", ["amp-bf16"]), ("7.0", ["amp-fp16"]), ("6.1", [])]
)
def test_the_second_precision_is_the_one_that_the_gpu_has_units_for(capability: str, precisions: list[str]) -> None:
    assert begin._tensor_core_precision(with_gpu(compute_capability=capability)) == precisions


def test_it_is_asked_for_only_where_time_is_short_and_nobody_named_a_precision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(detect, "detect", lambda *_: with_gpu())

    def stop(options: Options, *_: object) -> None:
        raise _AskedError(options.precisions)

    monkeypatch.setattr(begin, "choose", lambda engine, settings, planned, gpus: planned(SimpleNamespace(name="venv")))
    monkeypatch.setattr(begin, "_prospect", stop)
    for options, minutes, precisions in (
        (Options(out=tmp_path), 10.0, ("fp32", "amp-bf16")),
        (Options(out=tmp_path), None, ("fp32",)),
        (Options(out=tmp_path, precisions=("fp32",)), 10.0, ("fp32",)),
    ):
        with pytest.raises(_AskedError) as asked:
            begin.look_ahead(options, minutes)
        assert asked.value.args[0] == precisions


class _AskedError(Exception):
    """Stands in for the plan, and ends the look ahead with the precisions that were asked for."""


def test_a_run_that_chose_a_second_precision_is_gone_on_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(detect, "detect", lambda *_: Machine(CPU, (H200,), None))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = Options(out=tmp_path / "results", engine="venv", workloads=("gru-imdb",), images=("torch-2.13.0-*",))
    begun, run = begin.start(options, ["runner"], minutes=10)
    assert {cell.precision for cell in begun.plan.cells} == {"fp32", "amp-bf16"}
    resumed, _ = begin.resume(run.run_id, Options(out=tmp_path / "results"))
    assert resumed.plan.cells == begun.plan.cells
