"""What each command does not load, and how much CPU time it takes: a library that is loaded too early is felt by every command."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bench.identity import code_sha256
from tests.fixtures.synthetic import cell, make_run

PROJECT = Path(__file__).resolve().parents[4]
SCRIPT = """
import json, sys
from runner.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
# The page's libraries, what pyarrow loads for its data sets, and the bars of a run.
NEVER = {"pandas", "pyarrow.dataset", "plotly", "jinja2", "rich.progress"}
COMPUTING = {"numpy", "pyarrow"}
COMMANDS = {
    "matrix --help": (NEVER | COMPUTING | {"docker", "requests", "pynvml"}),
    "matrix --dry-run --gpus none --engine venv --out {out}": (NEVER | COMPUTING | {"docker", "requests"}),
    "compare a b --out {out}": NEVER | {"docker", "requests", "pynvml"},
    "compare torch jax --out {out}": NEVER | {"docker", "requests", "pynvml"},
    "history --out {out}": NEVER | {"docker", "requests", "pynvml"},
    "report --out {out} --output {out}/report.html": (NEVER - {"jinja2"})
    | {"docker", "requests", "pynvml", "runner.verify.probes.ceilings"},
    "report --text --out {out}": NEVER | {"docker", "requests", "pynvml"},
    "report --format markdown --out {out}": NEVER | {"docker", "requests", "pynvml"},
    "verify --run a --out {out}": NEVER | {"docker", "requests"},
    "reference list": NEVER | {"docker", "requests", "pynvml"},
    "rosetta cnn-cifar10 torch jax": NEVER | COMPUTING | {"docker", "requests", "pynvml"},
    "images list": NEVER | COMPUTING | {"docker", "requests", "pynvml"},
    "images show torch-2.13.0-cpu": NEVER | COMPUTING | {"docker", "requests", "pynvml"},
    "images check": NEVER | COMPUTING | {"docker", "requests", "pynvml"},
    "images prune --dry-run": NEVER | COMPUTING | {"pynvml"},
    "--version": NEVER | COMPUTING | {"docker", "requests", "pynvml", "runner.run.begin"},
    "gpus": NEVER | COMPUTING | {"docker", "requests"},
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    # As at the end of a run: its run.json says what its cells took, and its report shows the code that they ran.
    took = [{**cell("torch-2.13.0-cpu", "cnn-cifar10"), "seconds": 20.0}]
    for draw, name in enumerate("ab"):
        make_run(folder / name, repeats=2, windows=12, draw=draw, manifest={"took": took}, code=code_sha256)
    # A machine has references of its own, which nearly every command reads.
    saved = [sys.executable, "-m", "runner", "reference", "save", "a", "--name", "own", "--out", str(folder)]
    subprocess.run(saved, cwd=PROJECT, env=references_of(folder), capture_output=True, check=True)
    return folder


def references_of(folder: Path) -> dict[str, str]:
    return {**os.environ, "DLBENCH_REFERENCES": str(folder / "references")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_not_load_what_it_does_not_need(command: str, out: Path) -> None:
    words = command.format(out=out).split()
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        cwd=PROJECT,
        # A page that has a reference of its cells judges them.
        env=references_of(out / "none" if "runner.verify.probes.ceilings" in COMMANDS[command] else out),
        capture_output=True,
        text=True,
        check=False,
    )
    loaded = set(json.loads(ended.stderr.splitlines()[-1]))
    assert "runner.cli.main" in loaded
    assert ended.returncode in (0, 1, 3)
    assert "Traceback" not in ended.stderr, ended.stderr
    assert not COMMANDS[command] & loaded


COLLECTING = """
import gc
from runner.cli.main import main
try:
    main()
finally:
    print(gc.isenabled(), gc.get_freeze_count())
"""


@pytest.mark.parametrize("command", ["reference list", "images list"])
def test_what_is_loaded_before_a_command_is_not_searched_for_garbage_and_the_rest_is(command: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-c", COLLECTING, *command.split()], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    enabled, frozen = printed.stdout.splitlines()[-1].split()
    assert enabled == "True"
    assert int(frozen) > 20_000


# What nearly every command needs: how options and stored files are read, and tables.
LIBRARIES = "import numpy, pyarrow.parquet, pydantic.main, typer"
# These take 0.3 s of a quiet core, so this is 0.84 s. Two seconds and more was what pyenv's shims, a walk over the bench for each image,
# and declarations that were read again for each framework took.
MOST = 2.8


def cpu_seconds(*command: str, environment: dict[str, str]) -> float:
    """CPU time of a Python with its child processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], cwd=PROJECT, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """As on a machine where the runner has run before: its modules are compiled. No engine answers, and the project's cache is empty: each
    image of the one and each environment of the other would add to it."""
    folder = tmp_path_factory.mktemp("compiled")
    compiled = {
        "PYTHONPYCACHEPREFIX": str(folder),
        "DOCKER_HOST": f"unix://{folder}/none",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | compiled


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS, "verify --help"])
def test_a_command_takes_at_most_so_many_times_what_its_libraries_take_to_load(
    command: str, out: Path, environment: dict[str, str]
) -> None:
    words = command.format(out=out).split()
    ratios: list[float] = []
    # A busy machine makes both slower, and seldom equally.
    while len(ratios) < 6 and not (ratios and min(ratios) <= MOST):
        libraries = cpu_seconds("-c", LIBRARIES, environment=environment)
        ratios.append(cpu_seconds("-m", "runner", *words, environment=environment) / libraries)
    assert min(ratios) <= MOST, ratios
