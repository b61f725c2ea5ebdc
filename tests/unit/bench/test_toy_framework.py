"""Adding a framework touches only its folders: a toy one is dropped into a copy of the project, and everything knows it."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.rules import THREAD_VARIABLES
from runner.catalog.images import PROJECT
from runner.engines.probe import refusal
from tests.fixtures.weekly import only_with

TOY = PROJECT / "tests" / "fixtures" / "toy_framework"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("project")
    for name in ("bench", "runner", "reports", "images"):
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(TOY / "adapter", copy / "bench" / "frameworks" / "toy")
    shutil.copytree(TOY / "image", copy / "images" / "toy-1-cpu")
    return copy


def python(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(project)}
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [pytest.param("cnn-cifar10", marks=only_with("DLBENCH_CURVES", "its gru-imdb is checked")), "gru-imdb"],
)
def test_its_adapter_is_held_against_the_reference(project: Path, workload: str) -> None:
    ended = python(project, "bench", "check", workload, "--framework", "toy")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["failed"] == []


def test_a_mode_that_it_does_not_declare_is_refused(project: Path) -> None:
    ended = python(project, "bench", "run", "cnn-cifar10", "--framework", "toy", "--mode", "compile")
    assert "has no mode 'compile'" in ended.stdout
    assert '"unsupported"' in ended.stdout


@pytest.mark.parametrize(
    ("file", "planted", "words"),
    [
        ("cnn_cifar10.py", "from bench.frameworks.toy import _helpr", "cannot import name '_helpr'"),
        ("cnn_cifar10.py", "import bench.frameworks.toy._helpr", "No module named 'bench.frameworks.toy._helpr'"),
        ("framework.py", "from bench.cuda import no_such_name", "cannot import name 'no_such_name'"),
    ],
)
def test_a_typo_in_an_import_of_the_bench_fails_the_cell_and_the_kits_step_with_its_line(
    project: Path, tmp_path: Path, file: str, planted: str, words: str
) -> None:
    copy, path = with_an_import(project, tmp_path, file, planted)
    line = path.read_text().splitlines().index(planted) + 1
    cell = python(copy, "bench", "run", "cnn-cifar10", "--framework", "toy")
    check = python(copy, "bench", "check", "cnn-cifar10", "--framework", "toy")
    (error,) = [event for event in map(json.loads, cell.stdout.splitlines()) if event["event"] == "error"]
    assert error["kind"] == "bug"
    assert error["message"].startswith(f"bench/frameworks/toy/{file}, line {line}: {words}")
    assert check.stderr.splitlines()[-1] == f"bench.errors.BrokenImportError: {error['message']}"
    assert cell.returncode != 0
    assert check.returncode != 0
    assert refusal(check.stderr) is None


@pytest.mark.parametrize("file", ["framework.py", "cnn_cifar10.py"])
def test_a_framework_or_a_part_of_it_that_is_not_installed_is_unsupported(
    project: Path, tmp_path: Path, file: str
) -> None:
    copy, _ = with_an_import(project, tmp_path, file, "from a_framework_that_is_not_installed import nn")
    cell = python(copy, "bench", "run", "cnn-cifar10", "--framework", "toy")
    check = python(copy, "bench", "check", "cnn-cifar10", "--framework", "toy")
    expected = "No module named 'a_framework_that_is_not_installed'"
    (error,) = [event for event in map(json.loads, cell.stdout.splitlines()) if event["event"] == "error"]
    assert error["kind"] == "unsupported"
    assert expected in error["message"]
    assert expected in str(refusal(check.stderr))


def with_an_import(project: Path, folder: Path, file: str, planted: str) -> tuple[Path, Path]:
    """(a copy of the project's bench, the toy's file in it with one more import above the others)."""
    copy = folder / "project"
    shutil.copytree(project / "bench", copy / "bench")
    path = copy / "bench" / "frameworks" / "toy" / file
    text = path.read_text()
    path.write_text(text.replace("\nimport ", f"\n{planted}\nimport ", 1))
    assert planted in path.read_text()
    return copy, path


def test_it_is_planned_with_its_image(project: Path, tmp_path: Path) -> None:
    options = ["--gpus", "none", "--engine", "venv", "--images", "toy-*", "--out", str(tmp_path)]
    ended = python(project, "runner", "matrix", "--dry-run", "--format", "json", *options)
    assert ended.returncode == 0, ended.stderr
    planned = {(cell["image"], cell["framework"], cell["workload"]) for cell in json.loads(ended.stdout)["cells"]}
    assert planned == {("toy-1-cpu", "toy", "cnn-cifar10"), ("toy-1-cpu", "toy", "gru-imdb")}


@pytest.mark.parametrize(
    ("told", "kinds"),
    [
        ("", ["cpu"]),
        ("def device_kinds():\n    return ('cpu', 'cuda')\n", ["cpu", "cuda"]),
        ("def device_kinds():\n    raise RuntimeError('the driver is older than the build')\n", ["cpu"]),
    ],
)
def test_it_is_listed_with_the_kinds_of_devices_that_it_computes_on(
    project: Path, tmp_path: Path, told: str, kinds: list[str]
) -> None:
    copy = tmp_path / "project"
    shutil.copytree(project / "bench", copy / "bench")
    with (copy / "bench" / "frameworks" / "toy" / "framework.py").open("a") as source:
        source.write(f"\n\n{told}")
    ended = python(copy, "bench", "frameworks", "--framework", "toy")
    assert ended.returncode == 0, ended.stderr
    (entry,) = json.loads(ended.stdout)
    assert entry["framework"] == "toy"
    assert entry["device_kinds"] == kinds
    assert ("the driver is older" in ended.stderr) == ("raise" in told)


def test_its_source_is_shown(project: Path) -> None:
    ended = python(project, "runner", "rosetta", "cnn-cifar10", "toy", "torch")
    assert ended.returncode == 0, ended.stderr
    assert "bench/frameworks/toy/cnn_cifar10.py" in ended.stdout


# CPU seconds of a phase, in steps of this toy, at most. A prediction of the toy is a whole step, and 4 batches are held out.
MOST_STEPS = {
    "import": 0.5,
    "data": 1.0,
    "build": 0.5,
    # A probe and the canonical parameters.
    "parity": 3.5,
    # One batch before training, four after it.
    "evaluate": 6.5,
    "compile": 1.8,
    # Two predictions, four steps, two probes, the items of the last step, and the reference of some held-out items.
    "proof": 10.5,
    "between phases": 0.5,
}
# Each check that the cell makes, by its phase and quantity. A check that is given up to save time is missed here.
CHECKS = {
    ("parity", "logits"): 1,
    ("parity", "loss"): 1,
    ("parity", "gradient"): 7,
    ("proof", "moved"): 9,
    ("proof", "items"): 2,
    ("proof", "exact"): 5,
    ("proof", "evaluated"): 2,
    ("proof", "learning"): 2,
    ("proof", "prediction"): 1,
    ("proof", "parameter"): 7,
}


@pytest.mark.slow
def test_no_phase_of_a_repeat_takes_more_cpu_time_than_its_steps_allow_and_no_check_is_given_up(
    project: Path, tmp_path: Path
) -> None:
    script = PROJECT / "tests" / "unit" / "bench" / "phase_costs.py"
    one_thread = dict.fromkeys(THREAD_VARIABLES, "1")
    # The copy has no compiled files, and to compile them would count as work of whichever phase imports them.
    compileall.compile_dir(project / "bench", quiet=2)
    command = [sys.executable, "-P", str(script), "gru-imdb", "256"]
    over: dict[str, float] = {}
    # Work beside it only adds: of three times the least counts, as in `within`.
    for turn in range(3):
        environment = os.environ | one_thread | {"PYTHONPATH": str(project), "DLBENCH_CACHE": str(tmp_path / str(turn))}
        printed = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
        assert Counter((phase, quantity) for phase, quantity, _ in printed["checks"]) == CHECKS
        seconds = printed["seconds"]
        step = (seconds.pop("warm-up") + seconds.pop("train") + seconds["compile"]) / printed["steps"]
        taken = {phase: spent / step for phase, spent in seconds.items()}
        assert set(taken) == set(MOST_STEPS)
        if not (over := {phase: steps for phase, steps in taken.items() if steps > MOST_STEPS[phase]}):
            break
    assert over == {}
