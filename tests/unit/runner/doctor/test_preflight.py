"""The checks of `runner verify --level 1` and `--level 2`: what fails, what is open, and that the stated time is kept."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from runner.cli.main import app
from runner.doctor import preflight
from runner.doctor.preflight import BLOCKS, Bits, Product, odd_ones
from runner.doctor.scene import FAIL, LACKING, OK, OPEN, Check, Scene
from runner.engines import trial
from runner.engines.base import ReadyImage
from runner.errors import EngineError, UserError
from runner.images.tried import AdapterCheck
from runner.machine import lease
from runner.machine.devices import Cpu, Gpu, Machine
from runner.paths import PROJECT
from runner.run.options import Options
from runner.verify.references.saved import make
from tests.fixtures.json_documents import valid
from tests.fixtures.plans import image, make_cell
from tests.unit.runner.verify.test_causes import ceilings
from tests.unit.runner.verify.test_references import saved_cell

L4 = "NVIDIA L4"
GPUS = tuple(
    Gpu(at, f"GPU-{at}", L4, "8.9", 24 << 30, "570.1", (0,), f"GPU-{at}", cuda_driver="13.0", persistence=True)
    for at in range(2)
)
WELL = Scene(GPUS, None, (), "570.1", None, "no Docker Engine answers", {}, None, None)


def parity(outcome: str = "ok", reason: str = "") -> AdapterCheck:
    fields: dict[str, Any] = {
        "framework": "torch",
        "workload": "gru-imdb",
        "precision": "fp32",
        "date": date(2026, 1, 1),
    }
    return AdapterCheck.model_construct(**fields, outcome=outcome, reason=reason, worst=0.5, compared=9)


def bits(odd: Sequence[tuple[int, int, int]] = (), change: int = 0) -> Bits:
    """A product's bits, some of whose runs were others; `change`: of the sum of block (3, 7) in all runs."""
    sums = np.arange(BLOCKS**2, dtype="<u4")
    sums[3 * BLOCKS + 7] += change
    product = Product(
        name="bf16 product", fixed=True, runs=30, alike=30 - len(odd), odd=tuple(odd), sums=sums.tobytes().hex()
    )
    return Bits(products=(product,))


class Site:
    """Two GPUs with an image of torch, in the place of this machine."""

    def __init__(self, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
        self.image = image(tmp_path)
        self.cost = 0
        self.kind = "cuda"
        self.parity = {gpu.uuid: parity() for gpu in GPUS}
        self.rates = ceilings(load=0.0, cpus=8)
        self.bits = {gpu.uuid: bits() for gpu in GPUS}
        self.looks = 0
        patch.setenv(lease.VARIABLE, str(tmp_path / "leases"))
        patch.setattr(preflight, "gather", lambda *_: contextlib.nullcontext(WELL))
        patch.setattr(preflight, "folders", lambda _: iter(()))
        patch.setattr(preflight, "look_ahead", self.look_ahead)
        patch.setattr(preflight.ceilings, "measure", lambda *_: self.rates)
        patch.setattr(preflight, "measure_bits", lambda *words: self.bits[words[3].device_uuids[0]])
        patch.setattr(trial, "imports", lambda *_: ({"torch": "2.13.0"}, {}))
        patch.setattr(trial, "check_adapter", lambda *words: self.parity[words[-1].device_uuids[0]])

    def look_ahead(self, options: Options) -> Any:
        self.looks += 1
        model = L4 if self.kind == "cuda" else "CPU"
        cell = make_cell(image=self.image.name, device_kind=self.kind, device_model=model)
        engine = SimpleNamespace(
            parts=lambda one: {one.name: self.cost}, prepare=lambda one, say: ReadyImage(one, "sha256:0", ())
        )
        return SimpleNamespace(
            plan=SimpleNamespace(cells=[cell]),
            machine=Machine(Cpu("CPU", (0,), 8 << 30), GPUS, None),
            images={self.image.name: self.image},
            engine=engine,
            options=options,
            jobs=[cell],
            leased=lambda jobs: [gpu.uuid for gpu in GPUS],
        )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def bad(checks: list[Check]) -> list[tuple[str, str]]:
    return [(check.status, check.name) for check in checks if check.status not in (OK, "warn")]


def test_level_1_asks_no_device_and_level_2_each(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("parity" in check.name for check in preflight.preflight(Options(), 1, ()))
    assert "level 1: facts and probes, at most 45 s\n" in capsys.readouterr().err
    checks = preflight.preflight(Options(), 2, ())
    assert [check.name for check in checks if "parity" in check.name] == [
        f"parity gru-imdb torch fp32 on {L4} …PU-{at}" for at in range(2)
    ]
    assert (preflight.exit_code(checks), bad(checks)) == (0, [])
    assert "level 2: parity, ceilings and bits of 2 devices, at most 240 s\n" in capsys.readouterr().err
    assert preflight.ending(checks, 2).startswith("pass: none of ")


def test_a_gpu_that_computes_something_else_fails(site: Site) -> None:
    site.parity["GPU-1"] = parity("wrong", "loss is 2 times its bound")
    checks = preflight.preflight(Options(), 2, ())
    assert bad(checks) == [(FAIL, f"parity gru-imdb torch fp32 on {L4} …PU-1")]
    assert preflight.exit_code(checks) == 1


def test_a_gpu_whose_bits_change_from_run_to_run_fails_and_the_block_is_named(site: Site) -> None:
    site.bits["GPU-1"] = bits([(11, 3, 7)])
    (found,) = [check for check in preflight.preflight(Options(), 2, ()) if check.status == FAIL]
    assert found.name == f"same bits torch on {L4} …PU-1"
    assert found.saw.startswith(
        "bf16 product: 1 of 30 runs gave other bits of the same factors, first run 12 in block (3, 7)"
    )


def test_counts_and_blocks_that_contradict_each_other_are_refused() -> None:
    """They come out of a container."""
    told = bits([(11, 3, 7)]).products[0].model_dump()
    for wrong in ({"odd": ()}, {"alike": 30}, {"alike": 31}):
        with pytest.raises(ValidationError, match="contradict each other"):
            Product(**(told | wrong))


def test_of_three_gpus_of_a_model_or_more_the_one_with_other_bits_is_named() -> None:
    three = {"a": bits(), "b": bits(change=1 << 30), "c": bits()}
    assert [(name, "in block (3, 7)" in why) for name, why in odd_ones(three)] == [("b", True)]
    assert list(odd_ones({"a": bits(), "b": bits(change=1)})) == [], "of two nobody knows which one is wrong"
    assert list(odd_ones({"a": bits(), "b": bits(change=1), "c": bits(change=2)})) == []
    unlike = {
        name: Bits(products=(one.products[0].model_copy(update={"fixed": False}),)) for name, one in three.items()
    }
    assert list(odd_ones(unlike)) == [], "kernels that each GPU chooses by its times may differ"


def test_a_build_without_cuda_fails_on_a_machine_with_gpus_unless_it_was_asked_for(site: Site) -> None:
    site.kind = "cpu"
    assert bad(preflight.preflight(Options(), 1, ())) == [(FAIL, "environment")]
    assert bad(preflight.preflight(Options(images=(site.image.name,)), 1, ())) == []


def test_low_ceilings_are_open_as_they_have_no_error_rate(site: Site) -> None:
    own = saved_cell(device_model="L4").model_copy(update={"ceilings": ceilings(load=0.0, cpus=8)})
    reference = make("lab", "2026-11-20T00:00:00+00:00", ["run-1"], "0.1.0", [own])
    assert bad(preflight.preflight(Options(), 2, [reference])) == []
    site.rates = ceilings(own=0.5, load=0.0, cpus=8)
    checks = preflight.preflight(Options(), 2, [reference])
    assert {status for status, _ in bad(checks)} == {OPEN}
    assert preflight.exit_code(checks) == 3
    site.rates = ceilings(load=9.0, cpus=8)
    assert any("processes were running" in check.saw for check in preflight.preflight(Options(), 2, ()))


def test_what_is_not_here_or_cannot_be_planned_is_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.cost = 10**9
    checks = preflight.preflight(Options(), 2, ())
    assert bad(checks) == [(OPEN, site.image.name)]

    def none(_: Options) -> None:
        raise UserError("there is no framework here")

    def no_engine(_: Options) -> None:
        raise EngineError("no engine answers")

    monkeypatch.setattr(preflight, "look_ahead", none)
    checks = preflight.preflight(Options(), 2, ())
    assert (bad(checks), preflight.exit_code(checks)) == ([(OPEN, "environment")], 3)
    monkeypatch.setattr(preflight, "look_ahead", no_engine)
    checks = preflight.preflight(Options(), 2, ())
    assert (bad(checks), preflight.exit_code(checks)) == ([(LACKING, "environment")], 4)
    assert preflight.ending(checks, 2).startswith("could not begin: 1 check of ")


def test_a_fault_of_the_runner_and_a_folder_that_no_level_writes_to_fail_no_node(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwritable = [Check("cache", FAIL, "full"), Check("results", FAIL, "cannot be written")]
    monkeypatch.setattr(preflight, "folders", lambda _: iter(unwritable))
    assert bad(preflight.preflight(Options(), 1, ())) == [(FAIL, "cache")]
    monkeypatch.setattr(preflight, "folders", lambda _: iter(()))
    monkeypatch.setattr(preflight, "look_ahead", lambda _: 1 / 0)
    checks = preflight.preflight(Options(), 1, ())
    assert (bad(checks), preflight.exit_code(checks)) == ([(OPEN, "runner")], 3)


def test_the_stated_time_ends_a_level_and_what_was_checked_counts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: object) -> Any:
        time.sleep(30)

    monkeypatch.setattr(preflight, "LIMITS", {1: 2.0, 2: 0.5})
    monkeypatch.setattr(trial, "check_adapter", hangs)
    began = time.monotonic()
    checks = preflight.preflight(Options(), 2, ())
    assert time.monotonic() - began < 5
    assert (checks[-1].status, checks[-1].name, preflight.exit_code(checks)) == (OPEN, "time", 3)
    assert any(check.name.startswith("ceilings") for check in checks)
    # The GPUs are free again.
    with lease.hold(["GPU-0", "GPU-1"], "another", print, wait=False):
        pass
    # A failure that was seen before stays one.
    assert preflight.exit_code([Check("driver", FAIL, ""), *checks]) == 1
    monkeypatch.setattr(trial, "imports", hangs)
    looks = site.looks
    checks = preflight.preflight(Options(), 2, ())
    assert (checks[-1].name, site.looks) == ("time", looks + 1)


def test_a_call_that_no_signal_ends_is_ended_with_the_process() -> None:
    """As a call into a driver that hangs."""
    script = (
        "import signal, time; from runner.doctor import preflight; preflight._GRACE_SECONDS = 0.2\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n"
        "with preflight._limited(0.1, 'level 1'): time.sleep(50)"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=40)
    assert (ended.returncode, "did not return within" in ended.stderr) == (3, True)


@pytest.mark.parametrize(("status", "code"), [(OK, 0), (FAIL, 1), (OPEN, 3), (LACKING, 4)])
def test_the_command_ends_with_the_code_of_its_checks(status: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check("driver", status, "it answers", fix="restart it")
    monkeypatch.setattr(preflight, "preflight", lambda *_: [check])
    ended = CliRunner().invoke(app, ["verify", "--level", "1", "--format", "json"])
    document = valid("verify --level", ended.stdout)
    assert (ended.exit_code, document["exit_code"], document["level"]) == (code, code, 1)
    text = CliRunner().invoke(app, ["verify", "--level", "2"])
    assert (text.exit_code, "driver: it answers" in text.stdout) == (code, True)


@pytest.mark.parametrize("option", ["--each-gpu", "--run=a", "--junit=a.xml", "--markdown=a.md", "--nodes=local:2"])
def test_options_of_measured_cells_are_refused_beside_a_level_without_any(option: str) -> None:
    ended = CliRunner().invoke(app, ["verify", "--level", "1", option])
    assert ended.exit_code == 2
    assert option.partition("=")[0] in ended.stderr
