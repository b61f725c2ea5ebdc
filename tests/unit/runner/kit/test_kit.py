"""The kit from end to end, with an interpreter that replays what real frameworks printed."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import identity
from runner.admission.record import Recorder
from runner.cli.main import app
from runner.engines.base import Launch, ReadyImage
from runner.engines.process import installed
from runner.engines.process.process import LocalRunning, start_process
from runner.kit import bundle as builds
from runner.kit import doing, measure, results_folder
from runner.kit.archive import read
from runner.kit.doing import Doer, energies, first_look, outcome, total
from runner.kit.imported import import_archive
from runner.kit.steps import KitStep
from runner.machine import telemetry
from runner.machine.devices import Cpu, Machine
from runner.paths import PROJECT
from runner.results import store
from runner.results.parcel import Parcel, decode
from runner.results.plausible import counts
from runner.run import attempt
from tests.fixtures.mounts import tmpfs
from tests.fixtures.pages import whole
from tests.fixtures.plans import make_cell
from tests.stand_ins.fleet import FLEET_VARIABLE, FakeGpu, Fleet

Kit = Callable[..., "subprocess.CompletedProcess[str]"]
SHORT = ("--device", "cpu", "--workloads", "cnn-cifar10,gru-imdb", "--repeats", "2", "--precision", "fp32,tf32")
ARCHIVE = "results/gpu-kit-results.tar.gz"
CPU = Machine(Cpu("AMD EPYC", (0,), 1), (), None)
STEP = KitStep("cell", make_cell(image="host-torch-2.13.0", device_model="AMD EPYC"))
EVENTS = replace(STEP, kind="events")


def test_a_kit_is_small_and_has_the_bench_of_this_checkout(kit: Path) -> None:
    files = [path for path in kit.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= builds.MOST_BYTES
    assert identity.source_digest(str(kit / "bench")) == identity.source_digest()
    assert (kit / "needs" / "pynvml.py").is_file()
    assert not [path for path in files if path.suffix == ".pyc"]


def test_make_gpu_kit_makes_it() -> None:
    words = ["make", "--no-print-directory", "--dry-run", "--assume-old=.venv/host.stamp", "gpu-kit"]
    said = subprocess.run(words, capture_output=True, text=True, cwd=PROJECT, check=True).stdout
    assert said.strip().endswith("/runner gpu-kit build/gpu-kit")


def test_a_kit_replaces_a_kit_and_keeps_what_others_put_there(kit: Path, tmp_path: Path) -> None:
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
    below_a_file = CliRunner().invoke(app, ["gpu-kit", str(tmp_path / "file" / "kit")])
    assert below_a_file.exit_code == 2
    assert f"{tmp_path / 'file' / 'kit'}: Not a directory" in below_a_file.stderr
    for name, words in (("link", "is a link"), ("file", "is a file; name a folder"), ("", "has .*, which no kit put")):
        with pytest.raises(builds.KitError, match=words):
            builds.build(tmp_path / name)
    assert (folder / builds.SCRIPT).is_file()
    assert (tmp_path / "file").read_text() == "mine"


def test_what_the_kit_takes_is_written_for_python_3_10(kit: Path) -> None:
    paths = [kit / "kit.py", *(kit / "runner").rglob("*.py")]
    assert len(paths) > 40
    for path in paths:
        ast.parse(path.read_text(), feature_version=(3, 10))


def test_an_import_that_no_kit_has_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "ENTRY", "runner.kit.archive")
    with pytest.raises(
        builds.KitError, match=r"No module named 'pydantic' .*runner/kit/archive.py.*import it elsewhere"
    ):
        builds.build(tmp_path / "kit")
    assert not (tmp_path / "kit").exists()


def test_results_are_imported_reported_saved_and_verified_against(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run_kit("--python", str(interpreter()), *SHORT)
    assert ended.returncode == 0, ended.stderr
    assert "10 steps ended well, 0 were refused, 0 failed, 0 were not done" in ended.stderr
    both = "torch cnn-cifar10 fp32: a step with channels-first takes 1.00 times as long as with channels-last"
    assert f"{both}; the default has channels-first\n" in ended.stderr, "what was recorded says so"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLBENCH_REFERENCES", str(tmp_path / "references"))
    # A replay is faster than any CPU computes it.
    monkeypatch.setattr(counts, "most_operations", lambda *_: None)
    runner = CliRunner()
    imported = runner.invoke(app, ["import", ARCHIVE, "--out", "runs"])
    assert imported.exit_code == 0, imported.stderr
    folder = Path(imported.stdout.strip())
    assert "10 × cell ok; 0 steps were not done" in imported.stderr
    digest = read(Path(ARCHIVE)).sha256
    assert f"Imported from the archive {digest[:12]}." in whole(folder / "report.html")
    words = "--workloads gru-imdb --precision fp32 --repeats 2 --out measured-again"
    assert f"python3 kit.py --device cpu --frameworks torch {words}" in whole(folder / "report.html")
    cells = store.read([folder], "cells").to_pandas()
    assert set(cells.engine.dropna()) == {"host"}
    assert list(cells[cells.status == "failed"].reason) == []
    assert sorted(cells[cells.status == "ok"].repeat) == [1] * 6 + [2] * 4
    assert set(cells[cells.status == "ok"]["mode"]) == {"default", "compile", "channels-first", "channels-last"}
    manifest = store.RunStore(folder).manifest()
    assert manifest["imported"]["sha256"] == digest
    assert {cell["image"] for cell in manifest["plan"]} == {"host-torch-2.13.0"}
    reasons = cells[cells.status == "skipped"].reason
    assert set(reasons) == {"a CPU has no TF32 unit", "torch has no mode 'graph' here: a CUDA graph needs a GPU"}
    assert runner.invoke(app, ["reference", "save", str(folder), "--name", "gpu-day", "--noisy"]).exit_code == 0
    verified = runner.invoke(app, ["verify", "--run", str(folder), "--reference", "gpu-day"])
    assert verified.exit_code in (0, 3), verified.output
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
    ended = run_kit(*short, "--minutes", "0.3")
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


FILLING = """#!/bin/sh
echo once >> {calls}
if [ $(wc -l < {calls}) -gt {of} ] && [ ! -e {given_back} ]; then
    dd if=/dev/zero of={disk}/somebody bs=4k 2> /dev/null
fi
exec {interpreter} "$@"
"""


@pytest.mark.slow
@pytest.mark.parametrize("of", [2, 5])
def test_a_kit_whose_disk_another_fills_says_so_and_the_same_command_goes_on_once_there_is_room(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path, of: int
) -> None:
    filling, given_back = tmp_path / "filling", tmp_path / "given-back"
    (tmp_path / "results").mkdir()
    with tmpfs(tmp_path / "results", "size=24m"):
        named = {"calls": tmp_path / "calls", "disk": tmp_path / "results", "given_back": given_back}
        filling.write_text(FILLING.format(interpreter=interpreter(), of=of, **named))
        filling.chmod(0o755)
        short = ("--python", str(filling), *SHORT)
        ended = run_kit(*short)
        done = {path: path.read_bytes() for path in tmp_path.glob("results/steps/*.parcel")}
        assert ended.returncode == (1 if done else 4), ended.stderr
        assert "No space left on device" in ended.stderr
        assert "run it again" in ended.stderr or "run the same command again" in ended.stderr
        assert "Traceback" not in ended.stderr
        given_back.touch()
        (tmp_path / "results" / "somebody").unlink()
        ended = run_kit(*short)
        assert ended.returncode == 0, ended.stderr
        assert "10 steps ended well, 0 were refused, 0 failed, 0 were not done" in ended.stderr
        assert {path: path.read_bytes() for path in done} == done
        whole = read(tmp_path / ARCHIVE)
        assert len(whole.steps) == len(whole.facts.planned)


def test_a_kit_without_the_time_for_a_step_has_measured_nothing(run_kit: Kit, interpreter: Callable[..., Path]) -> None:
    ended = run_kit("--python", str(interpreter()), *SHORT, "--minutes", "0.01")
    assert ended.returncode == 4, ended.stderr
    assert "not done, because the time was over" in ended.stderr
    assert "nothing was measured" in ended.stderr


def do(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    step: KitStep = STEP,
    seconds: float = 60.0,
    why: str = "the time was over",
) -> Doer:
    """Do a step in this folder, and its second repeat; their processes run this script."""

    def scripted(launch: Launch, **_: object) -> LocalRunning:
        return start_process(replace(launch, prepared=ready, arguments=[]))

    monkeypatch.setattr(installed, "start_process", scripted)
    monkeypatch.setattr(doing, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(doing, "_DUMP_SECONDS", 0.0)
    monkeypatch.setattr(attempt, "_DUMP_SECONDS", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "steps").mkdir(exist_ok=True)
    ready, engine = ReadyImage(None, "", (sys.executable, "-c", script)), installed.InterpreterEngine("python")
    doer = Doer(folder, engine, ready, CPU, telemetry.Monitor(), time.monotonic() + seconds, {})
    assert doer.do([step, replace(step, repeat=2)]) == why
    assert why == "the time was over" or not results_folder.path_of(folder, replace(step, repeat=2)).exists()
    return doer


def left(folder: Path, step: KitStep = STEP) -> tuple[str, Parcel]:
    """What is said of a step that is done, and its parcel."""
    parcel = decode(results_folder.path_of(folder, step).read_bytes(), step.name)
    return outcome(step, parcel)[1], parcel


@pytest.mark.parametrize("step", [STEP, EVENTS])
def test_a_step_that_is_cut_off_twice_has_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: KitStep) -> None:
    for done in (False, True):
        do(tmp_path, monkeypatch, "import time; time.sleep(30)", step, 0.5)
        assert results_folder.path_of(tmp_path, step).exists() is done
    said, parcel = left(tmp_path, step)
    assert re.fullmatch(r"it had not ended after \d s and was stopped", said)
    assert parcel.ended_by == ("time-limit", said)


def test_a_cell_whose_gpu_is_lost_is_not_done_and_no_other_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attempt.telemetry, "lost_board", lambda _: "cpu")
    do(tmp_path, monkeypatch, "raise SystemExit(1)", why="its GPU fell off the bus")
    assert "cell torch gru-imdb fp32: its GPU fell off the bus" in capsys.readouterr().err
    assert not list((tmp_path / "steps").iterdir())


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("torch 2 finds no GPU: cuInit says 999", "no GPU can be opened (torch 2 finds no GPU: cuInit says 999)"),
        (
            "torch 2 opens no GPU, and the CUDA driver does: too old",
            "torch 2 opens no GPU, and the CUDA driver does: too old",
        ),
    ],
)
def test_a_cell_that_finds_no_gpu_any_more_is_not_done_and_no_other_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, why: str
) -> None:
    events = [
        {
            "event": "error",
            "t": 1.0,
            "v": 1,
            "kind": "no-device",
            "message": message,
            "traceback": "",
        },
        {"event": "end", "t": 1.0, "v": 1, "status": "failed", "stop": "none", "noise": None, "steps": 0},
    ]
    script = f"print({chr(10).join(map(json.dumps, events))!r}); raise SystemExit(1)"
    do(tmp_path, monkeypatch, script, why=why)
    assert not list((tmp_path / "steps").iterdir())


def test_a_step_that_finds_the_memory_full_is_left_and_the_next_one_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "torch 2 finds no GPU: cuDevicePrimaryCtxRetain says 2 CUDA_ERROR_OUT_OF_MEMORY; the GPU's memory is full"
    begun = tmp_path / "begun"
    event = {"event": "error", "t": 1.0, "v": 1, "kind": "no-device", "message": said, "traceback": ""}
    end = {"event": "end", "t": 1.0, "v": 1, "status": "failed", "stop": "none", "noise": None, "steps": 0}
    script = f"open({str(begun)!r}, 'a').write('x'); print({json.dumps(event) + chr(10) + json.dumps(end)!r}); exit(1)"
    doer = do(tmp_path, monkeypatch, script, why=said)
    assert begun.read_text() == "xx", "both repeats"
    assert (doer.gone, doer.why_left) == (None, {"torch": said})
    assert not list((tmp_path / "steps").iterdir())


def test_the_output_of_a_cell_is_decoded_once_for_its_outcome_and_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Recorder] = []

    def recorder() -> Recorder:
        made.append(Recorder())
        return made[-1]

    monkeypatch.setattr(doing, "Recorder", recorder)
    assert first_look(STEP, Parcel(STEP.cell.id, 1, "host", code=1)) == ("failed", "exit code 1", {})
    assert len(made) == 1


def test_a_framework_that_opens_no_gpu_leaves_the_time_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doer = Doer(tmp_path, installed.InterpreterEngine("python"), ReadyImage(None, "", ()), CPU, None, math.inf, {})  # type: ignore[arg-type]
    begun = []

    def measure(step: KitStep, limit: float) -> None:
        begun.append(step)
        if step.cell.framework == "torch":
            doer.unable["torch"] = "torch opens no GPU"

    monkeypatch.setattr(doer, "_measure", measure)
    other = replace(STEP, cell=replace(STEP.cell, framework="jax"))
    assert doer.do([STEP, other, replace(STEP, repeat=2), replace(other, repeat=2)]) == "torch opens no GPU"
    assert begun == [STEP, other, replace(other, repeat=2)]


@pytest.mark.parametrize(
    ("statuses", "unable", "code"),
    [
        ("ok ok ok", False, 0),
        ("ok refused refused", False, 0),
        ("refused refused refused", False, 4),
        ("ok failed refused", False, 1),
        ("failed refused refused", False, 1),
        ("refused", False, 1),
        ("ok", True, 1),
        ("refused", True, 4),
        ("", True, 4),
        ("", False, 4),
    ],
)
def test_a_kit_that_measured_nothing_does_not_end_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], statuses: str, unable: bool, code: int
) -> None:
    """Of three steps those that are named were done."""
    steps = [replace(STEP, repeat=repeat) for repeat in (1, 2, 3)]
    (tmp_path / "steps").mkdir()
    (tmp_path / results_folder.FACTS).write_text("{}")
    for step, status in zip(steps, statuses.split(), strict=False):
        results_folder.path_of(tmp_path, step).touch()
        results_folder.said_path(tmp_path, step).write_bytes(
            results_folder.document({"status": status, "energy_joules": {}})
        )
    assert measure._conclude(tmp_path, steps, "the time was over", ["torch"] if unable else []) == code
    assert ("once that works, run the same command" in capsys.readouterr().err) is unable
    if len(statuses.split()) < len(steps):
        assert measure._conclude(tmp_path, steps, doing.INTERRUPTED, []) == 130


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (
            "cuInit says 802 CUDA_ERROR_SYSTEM_NOT_READY; start nvidia-fabricmanager",
            "NVIDIA L4 cannot be opened: cuInit",
        ),
        ("", "0 were not done"),
    ],
)
def test_a_gpu_that_cuda_cannot_open_stops_the_kit_and_the_same_command_measures_it_after_the_remedy(
    run_kit: Kit, interpreter: Callable[..., Path], nvml_library: Path, tmp_path: Path, says: str, said: str
) -> None:
    fleet = Fleet((FakeGpu(),))
    variables = {"LD_LIBRARY_PATH": str(nvml_library), FLEET_VARIABLE: str(fleet.write(tmp_path / "fleet"))}
    words = ("--python", str(interpreter()), "--frameworks", "torch", "--workloads", "gru-imdb", "--precision", "fp32")
    ended = run_kit(*words, "--repeats", "1", CUDA_SAYS=says, **variables)
    assert (ended.returncode, said in ended.stderr) == (4 if says else 0, True), ended.stderr
    assert bool(list((tmp_path / "results" / "steps").iterdir())) is not bool(says)


@pytest.mark.parametrize("step", [STEP, EVENTS])
def test_an_interrupt_stops_the_step_that_runs_and_keeps_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: KitStep
) -> None:
    began = time.monotonic()
    script = f"import os, signal, time; os.kill({os.getpid()}, signal.SIGINT); time.sleep(60)"
    do(tmp_path, monkeypatch, script, step, why="it was interrupted")
    assert time.monotonic() - began < 40
    assert not results_folder.path_of(tmp_path, step).exists()


def test_an_interrupt_while_the_frameworks_are_looked_for_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "run", interrupted)
    assert measure.main([]) == 130
    assert capsys.readouterr().err == "kit.py: interrupted; what had ended is kept, run it again\n"


def test_a_step_that_prints_too_much_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doing, "MOST_OUTPUT_BYTES", 100)
    do(tmp_path, monkeypatch, "while True: print('x' * 40)", EVENTS)
    said, parcel = left(tmp_path, EVENTS)
    assert [piece for _, piece in parcel.tape] == [(b"x" * 40 + b"\n") * 2 + b"x" * 18]
    assert said == "it printed nothing"


def test_a_cell_for_which_the_archive_has_no_room_is_a_parcel_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_folder, "MOST_BYTES", 100)
    do(tmp_path, monkeypatch, "print('{}')")
    said, parcel = left(tmp_path)
    assert (said, parcel.tape) == ("the archive would have more than 100 bytes with what it printed", ())


def test_the_first_start_that_measures_something_decides_the_options(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    words = ("--python", str(interpreter()), "--device", "cpu", "--precision", "fp32", "--repeats", "1")
    # So little time is left that no step begins.
    assert run_kit(*words, "--workloads", "cnn-cifar10", "--minutes", "0.01").returncode == 4
    assert read(tmp_path / ARCHIVE).steps == {}
    ended = run_kit(*words, "--workloads", "gru-imdb")
    assert ended.returncode == 0, ended.stderr
    assert {step.cell.workload for step in read(tmp_path / ARCHIVE).steps} == {"gru-imdb"}
    for more, said in (
        (("--workloads", "cnn"), "--workloads was gru-imdb when the measurement"),
        (("--frameworks", "torch"), "--frameworks was not given when the measurement"),
        (("--repeats", "2"), "--repeats was 1 when the measurement"),
    ):
        ended = run_kit(*words, *more)
        assert ended.returncode == 2
        assert said in ended.stderr
        assert "name another folder with --out" in ended.stderr
    assert run_kit(*words).returncode == 0


def test_a_cell_that_computes_something_else_and_one_that_breaks_the_protocol_are_named(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    path = interpreter(wrong="gru-imdb")
    broken = """.read().replace("steady", "best" if words[3] == "cnn-cifar10" else "steady")"""
    text = path.read_text().replace(".read()", broken)
    path.write_text(text)
    ended = run_kit("--python", str(path), *SHORT)
    assert ended.returncode == 1
    assert re.search(r"cell torch gru-imdb fp32: failed: logits logits: \S+ > \S+", ended.stderr)
    imported = import_archive(read(tmp_path / ARCHIVE), tmp_path / "runs")
    failed = {(o.step.kind, o.step.cell.workload): o.reason for o in imported.outcomes if o.status != "ok"}
    assert "logits" in failed["cell", "gru-imdb"]
    assert "its output broke the protocol" in failed["cell", "cnn-cifar10"]


def test_edited_facts_of_an_earlier_start_are_named(
    run_kit: Kit, interpreter: Callable[..., Path], tmp_path: Path
) -> None:
    python = str(interpreter())
    run_kit("--python", python, *SHORT)
    path = next(tmp_path.rglob("facts.json"))
    facts = json.loads(path.read_text())
    other = facts["planned"][0]["cell"] | {"framework": "../x"}
    for edited in ("{", json.dumps(facts | {"planned": [facts["planned"][0] | {"cell": other}]}, indent=1)):
        path.write_text(edited)
        ended = run_kit("--python", python, *SHORT)
        assert ended.returncode == 2
        assert "facts.json is not as this kit wrote it; restore it, or name another folder with --out" in ended.stderr
    path.write_text(json.dumps(facts, indent=1, ensure_ascii=False))
    said = next(tmp_path.rglob("*.said"))
    outcome = json.loads(said.read_bytes())
    said.write_text("[1]")
    ended = run_kit("--python", python, *SHORT)
    assert ended.returncode == 2
    assert f"{said} is not as this kit wrote it; remove {said.with_suffix('.parcel')}, and its step" in ended.stderr
    said.with_suffix(".parcel").unlink()
    ended = run_kit("--python", python, *SHORT)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(said.read_bytes())["status"] == outcome["status"]


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--device cpu --gpu 3", "--device cpu and --gpu 3: the CPU is measured without a GPU; leave one of them out"),
        ("", "there is no GPU to measure: there is no NVIDIA driver on this machine; --device cpu measures the CPU"),
        ("--gpu 3", "--gpu 3: there is no NVIDIA driver on this machine; --device cpu measures the CPU"),
        ("--device cpu --frameworks jax", "there is no 'jax'; there is torch"),
        ("--device cpu --workloads cnn-cifar", "there is no 'cnn-cifar' (did you mean 'cnn-cifar10'?); there is cnn-c"),
    ],
)
def test_a_start_that_can_measure_nothing_says_why(
    kit: Path, run_kit: Kit, interpreter: Callable[..., Path], words: str, said: str
) -> None:
    ended = run_kit("--python", str(interpreter()), *words.split())
    assert ended.returncode == (4 if "NVIDIA driver" in said else 2)
    assert said in ended.stderr
    assert not list(kit.rglob("__pycache__"))


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
    assert ended.returncode == 4
    assert "nothing can be measured: torch 2.13.0+cpu here computes on cpu only" in ended.stderr
    ended = run_kit(*words, "--frameworks", "torch", **variables)
    assert ended.returncode == 0, ended.stderr
    assert "10 steps ended well, 2 were refused, 0 failed, 0 were not done" in ended.stderr
    assert "cell torch gru-imdb amp-fp16: refused: torch does not compute amp-fp16 here" in ended.stderr
    assert "NVIDIA H200, driver 580.82.07" in ended.stderr
    assert f"{fleet.uuids()[0]}: its energy counter says" in ended.stderr
    imported = import_archive(read(tmp_path / ARCHIVE), tmp_path / "runs")
    refused = {(each.step.kind, each.reason) for each in imported.outcomes if each.status == "refused"}
    assert refused == {("cell", "torch does not compute amp-fp16 here")}
    assert {each.status for each in imported.outcomes} == {"ok", "refused"}
    assert {each.step.cell.precision for each in imported.outcomes} == {"fp32", "tf32", "amp-bf16", "amp-fp16"}
    windows = [each.reason for each in imported.outcomes if each.step.kind == "events"]
    assert windows == ["the clock is within 1 % of CUDA's events"]
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
    of_cpu = run_kit(*words, "--device", "cpu", **variables)
    assert of_cpu.returncode == 2
    assert "device_uuid was another when this measurement began; name another folder with --out" in of_cpu.stderr
