"""What the command `runner` answers when nothing is measured: plans, lists, refusals, help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT, load_catalog
from runner.catalog.workloads import adapters, load_workloads
from runner.cli.shared import chosen_runs
from runner.engines.process.interpreters import Interpreter, find_interpreter
from tests.fixtures.commands import runner
from tests.fixtures.synthetic import make_run


def test_a_dry_run_starts_nothing_and_says_what_runs_what_is_left_out_and_what_it_costs(tmp_path: Path) -> None:
    arguments = ["matrix", "--dry-run", "--gpus", "none", "--engine", "venv", "--out", str(tmp_path / "results")]
    shown = runner(*arguments, env=os.environ | {"COLUMNS": "200"})
    assert shown.returncode == 0
    assert "torch-2.13.0-cpu" in shown.stdout
    assert "its CPU twin torch-2.13.0-cpu stands in" in " ".join(shown.stdout.split())
    assert "GB" in shown.stdout
    told = json.loads(runner(*arguments, "--format", "json").stdout)
    computed = [
        (image.name, framework, workload.name)
        for image in load_catalog().values()
        if image.accelerator == "cpu" and image.untested is None
        for framework in image.frameworks
        for workload in load_workloads().values()
        if (framework, workload.module) in adapters()
    ]
    assert sorted((cell["image"], cell["framework"], cell["workload"]) for cell in told["cells"]) == sorted(computed)
    assert all(skip["reason"] for skip in told["skipped"])
    assert told["expected_seconds"] > 0
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "quik"], "'quik' is not one of 'quick', 'standard', 'full'"),
        (["--workloads", "cnn-cifar"], "did you mean 'cnn-cifar10'?"),
        (["--images", "torch-9-*"], "no image is called 'torch-9-*'"),
        (["--frameworks", "pytorch"], "did you mean 'torch'?"),
        (["--precision", "fp4"], "there is no 'fp4'"),
        (["--engine", "podman"], "there is no engine 'podman'"),
        (["--resume", "nowhere"], "is not a run"),
        (["--gpus", "77"], "77"),
        (["--devices", "²"], "'²' is not a number of devices"),
        (["--seed", "9999999999"], "--seed"),
        (["--python", sys.executable], "say --engine host as well"),
        (["--resume", "nowhere", "--dry-run"], "give one of them"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence_with_exit_2(tmp_path: Path, options: list[str], words: str) -> None:
    ended = runner("matrix", "--engine", "venv", "--out", str(tmp_path), *options)
    assert ended.returncode == 2, ended.stderr
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list(tmp_path.iterdir())


def test_the_catalog_is_listed_for_people_and_for_scripts() -> None:
    assert "torch-2.13.0-cpu" in runner("images", "list", env=os.environ | {"COLUMNS": "200"}).stdout
    rows = json.loads(runner("images", "list", "--format", "json").stdout)
    assert {row["name"] for row in rows} >= {"torch-2.13.0-cpu", "jax-0.10.2-cpu", "tensorflow-2.21.0-cpu"}


def test_a_run_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    make_run(tmp_path / "a", repeats=2)
    make_run(tmp_path / "b", repeats=2)
    out = chosen_runs([str(tmp_path / "a"), "b", "a", "./a/"], tmp_path)
    assert [folder.resolve().name for folder in out] == ["a", "b"]


def test_help_starts_in_at_most_ten_times_an_empty_interpreter(tmp_path: Path) -> None:
    compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path)}  # as on a machine where it has run before
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | compiled

    def seconds(*command: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, *command], cwd=PROJECT, env=environment, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begin

    # in turns, so that both see the machine's quiet moments
    pairs = [(seconds("-c", "pass"), seconds("-m", "runner", "--help")) for _ in range(20)]
    empty, shown = (min(times) for times in zip(*pairs, strict=True))
    assert shown <= 10 * empty, f"{shown * 1e3:.0f} ms against {empty * 1e3:.0f} ms: {shown / empty:.1f} times"


def test_help_loads_nothing_heavy() -> None:
    script = "import sys; import runner.cli.main; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ended = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert not {"pandas", "numpy", "pyarrow", "docker", "plotly", "pydantic", "jinja2", "pynvml", "requests"} & set(
        ended.stdout.split()
    )


def test_prune_removes_old_environments_where_no_engine_answers(tmp_path: Path) -> None:
    image = next(each for each in load_catalog().values() if isinstance(find_interpreter(each.python), Interpreter))
    old = tmp_path / "dlbench" / "venvs" / f"{image.name}-0123456789ab"
    old.mkdir(parents=True)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none"}
    told = runner("images", "prune", "--dry-run", env=environment)
    assert (told.returncode, told.stdout) == (0, f"{old} {image.name} of another lock or Python, 0.0 GB\n")
    assert told.stderr.startswith("images were not looked for: ")
    assert old.is_dir()
    assert runner("images", "prune", image.name, env=environment).stdout == told.stdout
    assert not old.exists()
