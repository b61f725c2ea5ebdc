"""The kit from end to end, with an interpreter that replays what real frameworks printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from bench import identity
from runner.catalog.workloads import load_workloads
from runner.cli.main import app
from runner.engines.process.process import start_process
from runner.engines.slots import Slot
from runner.kit import bundle as builds
from runner.kit import doing, pack
from runner.kit.agreement import energies, total
from runner.kit.archive import read
from runner.kit.doing import Doer, StepInterpreter
from runner.kit.imported import import_archive
from runner.kit.steps import Device, KitStep, Wanted, cell_of, plan
from runner.machine import telemetry
from runner.paths import PROJECT
from runner.results import store
from runner.results.parcel import decode
from runner.results.plausible import work
from runner.run import attempt
from tests.fixtures.pages import whole
from tests.stand_ins.fleet import FLEET_VARIABLE, FakeGpu, Fleet

if TYPE_CHECKING:
    from runner.engines.process.process import LocalRunning

Kit = Callable[..., "subprocess.CompletedProcess[str]"]
SHORT = ("--device", "cpu", "--workloads", "cnn-cifar10,gru-imdb", "--repeats", "2", "--precision", "fp32,tf32")
ARCHIVE = "results/gpu-kit-results.tar.gz"
GPU = Device("cuda", "NVIDIA H200", "9.0")


def test_a_kit_is_small_and_has_the_bench_of_this_checkout(kit: Path) -> None:
    files = [path for path in kit.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= builds.MOST_BYTES
    assert identity.source_digest(str(kit / "bench")) == identity.source_digest()
    assert (kit / "needs" / "pynvml.py").is_file()
    assert not [path for path in files if path.suffix == ".pyc"]


def test_make_gpu_kit_makes_it() -> None:
    words = ["make", "--no-print-directory", "--dry-run", "--assume-old=.venv/host.stamp", "gpu-kit"]
    said = subprocess.run(words, capture_output=True, text=True, cwd=PROJECT, check=True).stdout
    assert said.strip().endswith("-m runner.kit.bundle build/gpu-kit")


def test_a_kit_is_not_written_over_somebody_elses_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(builds.KitError, match=r"has thesis.txt, which no kit put there"):
        builds.build(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_kit_replaces_a_kit_and_keeps_what_others_put_there(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(kit, tmp_path / "gpu-kit")
    (folder / "bench" / "of-yesterday.py").write_text("")
    with pytest.raises(builds.KitError, match=r"has bench/of-yesterday.py, which no kit put there"):
        builds.build(folder)
    (folder / "bench" / "of-yesterday.py").unlink()
    (folder / "bench" / "__pycache__").mkdir()
    (folder / "bench" / "__pycache__" / "cell.cpython-310.pyc").write_bytes(b"")
    builds.build(folder)
    assert not (folder / "bench" / "__pycache__").exists()
    (tmp_path / "file").write_text("mine")
    (folder / "gpu-kit-results").mkdir()
    with pytest.raises(builds.KitError, match="has gpu-kit-results of a measurement"):
        builds.build(folder)
    (tmp_path / "link").symlink_to(tmp_path)
    old = tmp_path / "old"
    old.mkdir()
    (old / builds.SCRIPT).write_text("")
    with pytest.raises(builds.KitError, match=r"has no kit-files.json: an older release made this kit"):
        builds.build(old)
    monkeypatch.setattr(sys, "argv", ["build", str(tmp_path / "file" / "kit")])
    assert builds.main() == 2
    assert "Not a directory; name another folder" in capsys.readouterr().err
    for name, words in (("link", "is a link"), ("file", "is a file; name a folder")):
        with pytest.raises(builds.KitError, match=words):
            builds.build(tmp_path / name)
    assert (folder / builds.SCRIPT).is_file()


def test_what_the_kit_takes_is_written_for_python_3_10() -> None:
    for path in builds.sources():
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 10))",
                path,
            ],
            check=True,
        )


def test_an_import_that_no_kit_has_is_named(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    # The kit calls no function that imports more.
    path.write_text("def of_a_run():\n    import pyarrow\n\n\nif True:\n    import pydantic\n")
    with pytest.raises(builds.KitError, match=r"module.py:6 imports pydantic, which a kit does not have"):
        list(builds._imports(path))


def test_results_are_imported_reported_saved_and_verified_against(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run_kit("--python", str(interpreter()), *SHORT)
    assert ended.returncode == 0, ended.stderr
    assert "6 steps ended well, 0 were refused, 0 failed, 0 were not done" in ended.stderr
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLBENCH_REFERENCES", str(tmp_path / "references"))
    # A replay is faster than any CPU computes it.
    monkeypatch.setattr(work, "most_operations", lambda *_: None)
    runner = CliRunner()
    imported = runner.invoke(app, ["import", ARCHIVE, "--out", "runs"])
    assert imported.exit_code == 0, imported.stderr
    folder = Path(imported.stdout.strip())
    assert "4 × cell ok, 2 × check ok; 0 steps were not done" in imported.stderr
    digest = read(Path(ARCHIVE)).sha256
    assert f"Imported from the archive {digest[:12]}." in whole(folder / "report.html")
    words = "--workloads gru-imdb --precision fp32 --repeats 2 --out measured-again"
    assert f"python3 kit.py --device cpu --frameworks torch {words}" in whole(folder / "report.html")
    cells = store.read([folder], "cells").to_pandas()
    assert set(cells.engine.dropna()) == {"host"}
    assert sorted(cells[cells.status == "ok"].repeat) == [1, 1, 2, 2]
    manifest = store.RunStore(folder).manifest()
    assert manifest["imported"]["sha256"] == digest
    assert {cell["image"] for cell in manifest["plan"]} == {"host-torch-2.13.0"}
    reasons = cells[cells.status == "skipped"].reason
    assert set(reasons) == {"a CPU has no TF32 unit"}
    assert runner.invoke(app, ["reference", "save", str(folder), "--name", "gpu-day", "--noisy"]).exit_code == 0
    verified = runner.invoke(app, ["verify", "--run", str(folder), "--reference", "gpu-day"])
    assert verified.exit_code in (0, 2), verified.output
    assert "gru-imdb" in verified.output
    again = runner.invoke(app, ["import", ARCHIVE, "--out", "runs"])
    assert again.exit_code == 2
    assert "is imported already" in again.stderr
    resumed = runner.invoke(app, ["matrix", "--resume", folder.name, "--out", "runs"])
    assert resumed.exit_code == 2
    assert "it was imported" in resumed.stderr


@pytest.mark.slow
def test_what_does_not_fit_is_said_and_done_by_the_next_start(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    short = ("--python", str(interpreter(hangs="gru-imdb")), *SHORT)
    ended = run_kit(*short, "--minutes", "0.2")
    assert ended.returncode == 1
    assert "not done, because the time was over" in ended.stderr
    assert "cell torch gru-imdb fp32: cut off, because the time was over; the next start does it again" in ended.stderr
    first = read(tmp_path / ARCHIVE)
    assert 0 < len(first.steps) < len(first.facts.planned)
    interpreter()
    ended = run_kit(*short)
    assert ended.returncode == 0, ended.stderr
    assert "going on with what was begun" in ended.stderr
    whole = read(tmp_path / ARCHIVE)
    assert len(whole.steps) == len(whole.facts.planned)
    assert first.steps.items() <= whole.steps.items()


def doer_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, seconds: float, step: KitStep) -> Doer:
    """A doer of steps in this folder for so long; each is a process that runs this script."""

    def start(prepared: object, words: object, *others: Any, **more: Any) -> LocalRunning:
        return start_process(StepInterpreter((sys.executable, "-c", script)), [], *others, **more)

    monkeypatch.setattr(doing, "start_process", start)
    monkeypatch.setattr(doing, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(doing, "_DUMP_SECONDS", 0.0)
    monkeypatch.setattr(attempt, "_DUMP_SECONDS", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "steps").mkdir(exist_ok=True)
    cell = cell_of(step, "2.13.0", "0" * 64, Device("cpu", "AMD EPYC", None))
    slot, deadline = Slot("cpu", (), (0,), None), time.monotonic() + seconds
    return Doer(folder, StepInterpreter(("python",)), {step: cell}, slot, None, telemetry.Monitor(), deadline, {})


def said(folder: Path, step: KitStep) -> str:
    return str(json.loads(pack.said_path(folder, step).read_bytes())["outcome"])


@pytest.mark.parametrize("kind", ["cell", "check"])
def test_a_step_that_is_cut_off_twice_has_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    step = KitStep(kind, "torch", "gru-imdb", "fp32")
    for done in (False, True):
        doer_in(tmp_path, monkeypatch, "import time; time.sleep(30)", 0.5, step).do([step])
        assert pack.path_of(tmp_path, step).exists() is done
    assert re.fullmatch(r"FAILED: it had not ended after \d s and was stopped", said(tmp_path, step))


def test_a_cell_whose_gpu_is_lost_has_a_parcel_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = KitStep("cell", "torch", "gru-imdb", "fp32")
    monkeypatch.setattr(attempt.telemetry_gpu, "lost_board", lambda _: "GPU-1")
    doer_in(tmp_path, monkeypatch, "raise SystemExit(1)", 30, step).do([step])
    parcel = decode(pack.path_of(tmp_path, step).read_bytes(), step.name)
    assert (parcel.ended_by, parcel.never_ran) == (("gpu-lost", "GPU-1 fell off the bus"), True)
    assert said(tmp_path, step) == "FAILED: GPU-1 fell off the bus"


def test_an_interrupt_stops_the_step_that_runs_and_keeps_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = KitStep("cell", "torch", "gru-imdb", "fp32")
    doer = doer_in(
        tmp_path, monkeypatch, "import os, signal, time; os.kill(%d, 2); time.sleep(60)" % os.getpid(), 50, step
    )
    began = time.monotonic()
    assert doer.do([step])
    assert time.monotonic() - began < 40
    assert not pack.path_of(tmp_path, step).exists()


def test_a_later_start_with_other_options_is_refused(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    words = ("--python", str(interpreter()), "--device", "cpu", "--precision", "fp32", "--repeats", "1")
    assert run_kit(*words, "--workloads", "gru-imdb").returncode == 0
    for more, said in (
        (("--workloads", "cnn-cifar10"), "--workloads was gru-imdb when the measurement"),
        (("--frameworks", "torch"), "--frameworks was not given when the measurement"),
        (("--repeats", "2"), "--repeats was 1 when the measurement"),
    ):
        ended = run_kit(*words, *more)
        assert ended.returncode == 2
        assert said in ended.stderr
        assert "name another folder with --out" in ended.stderr
    assert run_kit(*words).returncode == 0


def test_a_start_that_measured_nothing_decides_nothing(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    words = ("--python", str(interpreter()), "--device", "cpu", "--precision", "fp32", "--repeats", "1")
    # So little time is left that no step begins.
    assert run_kit(*words, "--workloads", "cnn-cifar10", "--minutes", "0.01").returncode == 1
    assert read(tmp_path / ARCHIVE).steps == {}
    ended = run_kit(*words, "--workloads", "gru-imdb")
    assert ended.returncode == 0, ended.stderr
    assert {step.workload for step in read(tmp_path / ARCHIVE).steps} == {"gru-imdb"}


def test_another_device_is_not_mixed_with_what_was_begun(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    run_kit("--python", str(interpreter()), *SHORT)
    facts = tmp_path / "results" / "facts.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"device_uuid": "GPU-another"}))
    ended = run_kit("--python", str(interpreter()), *SHORT)
    assert ended.returncode == 2
    assert "device_uuid was another when this measurement began; name another folder with --out" in ended.stderr


def test_a_check_that_fails_and_a_cell_that_breaks_the_protocol_are_named(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    path = interpreter(wrong="gru-imdb")
    text = path.read_text().replace(".read()", """.read().replace('"stage":"steady"', '"stage":"best"')""")
    path.write_text(text)
    ended = run_kit("--python", str(path), *SHORT)
    assert ended.returncode == 1
    assert "check torch gru-imdb fp32: FAILED (exit code 1), at 2.00 of its bound; logits x: 2 > 1" in ended.stderr
    imported = import_archive(read(tmp_path / ARCHIVE), tmp_path / "runs")
    failed = {(o.step.kind, o.step.workload): o.reason for o in imported.outcomes if o.status != "ok"}
    assert failed["check", "gru-imdb"] == "logits x: 2 > 1"
    assert "its output broke the protocol" in failed["cell", "cnn-cifar10"]


def test_a_check_that_prints_too_much_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = KitStep("check", "torch", "gru-imdb", "fp32")
    monkeypatch.setattr(doing, "MOST_OUTPUT_BYTES", 100)
    doer_in(tmp_path, monkeypatch, "while True: print('x' * 40)", 60, step).do([step])
    assert json.loads(pack.path_of(tmp_path, step).read_bytes())["output"] == ("x" * 40 + "\n") * 2 + "x" * 18
    assert said(tmp_path, step).startswith("FAILED")


def test_a_cell_for_which_the_archive_has_no_room_is_a_parcel_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = KitStep("cell", "torch", "gru-imdb", "fp32")
    monkeypatch.setattr(pack, "MOST_BYTES", 100)
    doer_in(tmp_path, monkeypatch, "print('{}')", 60, step).do([step])
    parcel = decode(pack.path_of(tmp_path, step).read_bytes(), step.name)
    assert parcel.tape == ()
    assert said(tmp_path, step) == "FAILED: the archive would have more than 100 bytes with what it printed"


def test_edited_facts_of_an_earlier_start_are_named(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    python = str(interpreter())
    run_kit("--python", python, *SHORT)
    path = next(tmp_path.rglob("facts.json"))
    facts = json.loads(path.read_text())
    step = facts["planned"][0]
    for edited, words in (
        ("{", "Expecting property name"),
        ("[]", "it is no object"),
        (json.dumps(facts | {"planned": []}), "it has no list of planned steps"),
        (json.dumps(facts | {"planned": [step | {"repeat": "1"}]}), r"planned\[0\] is no step"),
        (json.dumps(facts | {"planned": [step, step | {"framework": "../x"}]}), r"planned\[1\] is no step"),
    ):
        path.write_text(edited)
        ended = run_kit("--python", python, *SHORT)
        assert ended.returncode == 2
        assert re.search(f"facts.json: {words}.*restore it, or name another folder with --out", ended.stderr)


def test_what_tells_no_version_is_refused_at_the_start(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    path = interpreter()
    text = path.read_text()
    for old, words in (("3.11.7", "tells no version of Python"), ("2.13.0+cpu", "torch of .* tells no version")):
        path.write_text(text.replace(old, ""))
        ended = run_kit("--python", str(path), *SHORT)
        assert ended.returncode == 2
        assert re.search(words, ended.stderr), ended.stderr


def test_a_gpu_is_not_named_for_a_measurement_of_the_cpu(run_kit: Kit, interpreter: Callable[..., Path]) -> None:
    ended = run_kit("--python", str(interpreter()), "--device", "cpu", "--gpu", "3")
    assert ended.returncode == 2
    assert "--device cpu and --gpu 3: the CPU is measured without a GPU; leave one of them out" in ended.stderr


def test_a_machine_without_a_gpu_says_so(run_kit: Kit, interpreter: Callable[..., Path]) -> None:
    ended = run_kit("--python", str(interpreter()))
    assert ended.returncode == 2
    assert "there is no GPU to measure: there is no NVIDIA driver on this machine; --device cpu" in ended.stderr
    ended = run_kit("--python", str(interpreter()), "--gpu", "3")
    assert ended.returncode == 2
    assert (
        "--gpu 3: there is no GPU to measure: there is no NVIDIA driver on this machine; --device cpu" in ended.stderr
    )


def test_a_name_that_is_none_is_refused_with_those_that_there_are(
    kit: Path, run_kit: Kit, interpreter: Callable[..., Path]
) -> None:
    ended = run_kit("--python", str(interpreter()), "--device", "cpu", "--frameworks", "jax")
    assert ended.returncode == 2
    assert not list(kit.rglob("__pycache__"))
    assert "there is no 'jax'; there is torch" in ended.stderr


def test_a_cell_of_the_kit_is_the_cell_of_a_run_with_the_engine_host() -> None:
    cell = cell_of(
        KitStep("cell", "torch", "gru-imdb", "fp32"), "2.13.0+cpu", "0" * 64, Device("cpu", "AMD EPYC", None)
    )
    workload = load_workloads()["gru-imdb"]
    assert (cell.image, cell.batch) == ("host-torch-2.13.0", workload.batch_of("quick"))


def test_the_newest_facts_come_first_and_everything_is_there() -> None:
    steps, left_out = plan({"torch": None, "jax": None}, GPU, Wanted())
    kinds = [step.kind for step in steps]
    assert kinds[0] == "check"
    assert steps[0].precision == "fp32"
    assert kinds.index("cell") < kinds.index("events") < len(kinds) - kinds[::-1].index("check")
    assert len(set(steps)) == len(steps)
    assert {step.precision for step in steps if step.kind == "check"} == {"fp32", "tf32", "amp-bf16", "amp-fp16"}
    assert {step.precision for step in steps if step.workload == "ops"} == {
        "fp64",
        "fp32",
        "tf32",
        "fp16",
        "bf16",
        "fp8",
    }
    assert max(step.repeat for step in steps) == 3
    assert [step.framework for step in steps if step.kind == "events"] == ["torch", "torch"]
    assert left_out == []


def test_what_the_device_or_the_framework_cannot_do_is_left_out_with_a_sentence() -> None:
    steps, left_out = plan(
        {"torch": None, "jax": "it computes on the CPU only"}, Device("cuda", "Tesla V100", "7.0"), Wanted()
    )
    assert {step.precision for step in steps} >= {"fp32", "amp-fp16"}
    assert not {"tf32", "amp-bf16", "bf16", "fp8"} & {step.precision for step in steps}
    assert {left.reason for left in left_out if left.framework == "jax"} == {"it computes on the CPU only"}
    assert "Tesla V100 has no tf32: it takes compute capability 8.0" in {left.reason for left in left_out}


def test_the_energy_counter_is_held_against_the_power_over_time() -> None:
    rows = [
        {"device": "GPU-1", "unix": t, "energy_joules": 1000 + 101.0 * t, "power_watts": 100.0} for t in (0.0, 1.0, 3.0)
    ]
    cpu = [{"device": "cpu", "unix": 0.0, "energy_joules": 1.0}]
    one = energies([*rows, *cpu])
    assert one == {"GPU-1": (303.0, 300.0)}
    assert total([one, {}, one]) == {"GPU-1": (606.0, 600.0)}


def test_a_gpu_is_measured_with_its_telemetry_its_events_and_its_energy(
    run_kit: Kit, interpreter: Callable[..., Path], nvml_library: Path, tmp_path: Path
) -> None:
    fleet = Fleet((FakeGpu(name="NVIDIA H200", capability="9.0", memory_bytes=141 << 30, power_watts=500.0),))
    variables = {"LD_LIBRARY_PATH": str(nvml_library), FLEET_VARIABLE: str(fleet.write(tmp_path / "fleet"))}
    words = ("--python", str(interpreter(refuses="yes")), "--workloads", "gru-imdb", "--repeats", "1")
    ended = run_kit(*words, **variables)
    assert ended.returncode == 2
    assert "torch 2.13.0+cpu here computes on cpu only" in ended.stderr
    # Named, it is tried.
    ended = run_kit(*words, "--frameworks", "torch", **variables)
    assert ended.returncode == 0, ended.stderr
    assert "7 steps ended well, 2 were refused, 0 failed, 0 were not done" in ended.stderr
    assert "check torch gru-imdb amp-fp16: refused: torch does not compute amp-fp16 here" in ended.stderr
    assert "NVIDIA H200, driver 580.82.07" in ended.stderr
    assert f"{fleet.uuids()[0]}: its energy counter says" in ended.stderr
    imported = import_archive(read(tmp_path / ARCHIVE), tmp_path / "runs")
    refused = {(outcome.step.kind, outcome.reason) for outcome in imported.outcomes if outcome.status == "refused"}
    assert refused == {(kind, "torch does not compute amp-fp16 here") for kind in ("check", "cell")}
    assert {outcome.status for outcome in imported.outcomes} == {"ok", "refused"}
    assert {outcome.step.precision for outcome in imported.outcomes} == {"fp32", "tf32", "amp-bf16", "amp-fp16"}
    assert imported.events == (("torch gru-imdb", pytest.approx(0.01)),)
    counter, integral = imported.energies[fleet.uuids()[0]]
    assert counter == pytest.approx(integral, rel=0.05)
    cells = store.read([imported.run.folder], "cells").to_pandas()
    assert set(cells.device_model) == {"NVIDIA H200"}
    assert set(cells.device_kind) == {"cuda"}
    telemetry = store.read([imported.run.folder], "telemetry").to_pandas()
    assert set(telemetry[telemetry.device == fleet.uuids()[0]].power_watts) == {500.0}
    assert store.RunStore(imported.run.folder).manifest()["devices"][0]["uuid"] == fleet.uuids()[0]


def test_a_second_start_goes_on_with_the_gpu_of_the_first(
    run_kit: Kit, interpreter: Callable[..., Path], nvml_library: Path, tmp_path: Path
) -> None:
    fleet = Fleet((FakeGpu(processes="1:1000000"), FakeGpu()))
    variables = {"LD_LIBRARY_PATH": str(nvml_library), FLEET_VARIABLE: str(fleet.write(tmp_path / "fleet"))}
    words = ("--python", str(interpreter()), "--frameworks", "torch", "--workloads", "gru-imdb", "--precision", "fp32")
    assert run_kit(*words, "--repeats", "1", **variables).returncode == 0
    fleet.with_gpu(0, processes=None).write(tmp_path / "fleet")
    again = run_kit(*words, **variables)
    assert again.returncode == 0, again.stderr
    assert read(tmp_path / ARCHIVE).facts.device_uuid == fleet.uuids()[1]
