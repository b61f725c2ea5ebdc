"""A mistake in a file that people edit: one sentence with the file and the field, and exit code 2, from every command that reads it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from runner.catalog.images import PROJECT
from runner.paths import cache_folder, data_folder
from runner.verify.references.measured import reference_of
from runner.verify.references.saved import to_bytes
from tests.fixtures.synthetic import make_run

# Runs commands in a process of the copy, a fork for each line of standard input: their exit codes, what they print, and any exception that
# is not an exit. What all commands load is loaded once, and it reads no file that is damaged here.
DRIVER = """
import json, os, sys
import jinja2, numpy, pandas, pyarrow.parquet, pydantic
from typer.testing import CliRunner
from runner.cli.main import app
for line in sys.stdin:
    if os.fork() == 0:
        answers = []
        for words in json.loads(line):
            result = CliRunner().invoke(app, words)
            crash = None if isinstance(result.exception, SystemExit) else result.exception
            answers.append([result.exit_code, result.stderr, crash and repr(crash)])
        print(json.dumps(answers), file=sys.__stdout__, flush=True)
        os._exit(0)
    os.wait()
"""

IMAGES = [["images", *words] for words in (
    ["list"], ["show", "torch-2.13.0-cpu"], ["check"], ["build"], ["push", "registry.example", "torch-2.13.0-cpu"],
    ["export", "torch-2.13.0-cpu", "--to", "PAGE"],
    ["lock", "torch-2.13.0-cpu"], ["pin", "torch-2.13.0-cpu"], ["prune", "--dry-run"], ["files"], ["ci-matrix"])]  # fmt: skip
PLAN = ["matrix", "--dry-run", "--gpus", "none", "--engine", "venv"]
ROSETTA = ["rosetta", "cnn-cifar10", "torch", "jax"]
RESULTS = [
    ["report", "RUN", "-o", "PAGE"],
    ["compare", "RUN", "OTHER"],
    ["history", "RUN", "OTHER"],
    ["verify", "--run", "RUN"],
]
REFERENCE = [["reference", *words] for words in (
    ["list"], ["show", "lab"], ["diff", "lab", "lab"], ["export", "lab", "-o", "PAGE"], ["import", "REFERENCE", "--replace"])]  # fmt: skip

READERS = {
    "image.toml": [*IMAGES, PLAN],
    "framework.json": [["images", "check"], ["images", "files"], PLAN, ROSETTA, RESULTS[0]],
    "workload.json": [["images", "check"], PLAN, ROSETTA, RESULTS[0]],
    "run.json": [*RESULTS, ["reference", "save", "RUN", "--name", "x"], ["reference", "show", "published", "--run", "RUN"],
                 ["matrix", "--resume", "RUN", "--gpus", "none"]],
    "lab.reference.parquet": [*REFERENCE, RESULTS[3]],
}  # fmt: skip


def without(field: str) -> Callable[[bytes], bytes]:
    """Leaves the field out of a file that has one field a line."""
    return lambda text: re.sub(rb'(?m)^\s*"?%s"?\s*[:=].*\n' % field.encode(), b"", text)


def changed(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda text: text.replace(old.encode(), new.encode(), 1)


CATALOG = [["images", "check"], PLAN]
NOT_UTF8: Callable[[bytes], bytes] = lambda text: text.replace(b'"', b'"\xff', 1)  # noqa: E731
NESTED: Callable[[bytes], bytes] = lambda text: text.replace(b":", b":" + b"[" * 3000 + b"]" * 3000 + b',"x":', 1)  # noqa: E731
CUT_OFF: Callable[[bytes], bytes] = lambda text: text[: len(text) // 2]  # noqa: E731

# File, damage, words of the sentence beside the file's name, and the commands that read the file.
DAMAGES = [
    ("image.toml", changed("frameworks =", "frameworks"), "not TOML", READERS["image.toml"]),
    ("image.toml", NOT_UTF8, "not TOML", READERS["image.toml"]),
    ("image.toml", changed('"3.11"', "3.11"), "python", READERS["image.toml"]),
    ("image.toml", changed("locked", "lokced"), "lokced", READERS["image.toml"]),
    # `images lock` writes it.
    ("image.toml", without("download_gb"), "download_gb", [it for it in READERS["image.toml"] if it[1] != "lock"]),
    ("framework.json", CUT_OFF, "JSON", READERS["framework.json"]),
    ("framework.json", NOT_UTF8, "JSON", READERS["framework.json"]),
    ("framework.json", changed('"title"', '"tilte"'), "title", READERS["framework.json"]),
    ("framework.json", changed('"eager"', "7"), "modes.default", [PLAN]),
    ("framework.json", changed('"parallel"', '"paralel"'), "paralel", [PLAN]),
    ("framework.json", lambda _: b"[]", "not a JSON object", READERS["framework.json"]),
    ("framework.json", lambda _: b"", "not JSON", READERS["framework.json"]),
    ("framework.json", NESTED, "nested too deeply", READERS["framework.json"]),
    ("framework.json", changed('"title"', '"adapters": null, "title"'), "adapters", READERS["framework.json"]),
    ("framework.json", changed('"title"', '"backend": ["x"], "title"'), "backend", READERS["framework.json"]),
    ("workload.json", CUT_OFF, "not JSON", READERS["workload.json"]),
    ("workload.json", NOT_UTF8, "not JSON", READERS["workload.json"]),
    ("workload.json", without("batch"), "batch", CATALOG),
    ("workload.json", changed('"batch": 64', '"batch": "many"'), "batch", CATALOG),
    ("workload.json", changed('"chance"', '"chanse"'), "chan", CATALOG),
    ("workload.json", lambda _: b"[]", "not a JSON object", READERS["workload.json"]),
    ("workload.json", NESTED, "nested too deeply", READERS["workload.json"]),
    ("workload.json", changed('"title"', '"computes": 5, "title"'), "computes", READERS["workload.json"]),
    ("workload.json", changed('"chance": 0.1', '"chance": "x"'), "chance", [*CATALOG, RESULTS[0]]),
    ("run.json", CUT_OFF, "not JSON", READERS["run.json"]),
    ("run.json", NOT_UTF8, "not JSON", READERS["run.json"]),
    ("run.json", changed('"plan"', '"plam"'), "plan", READERS["run.json"]),
    ("run.json", changed('"created": "2026', '"created": "nonsense'), "created", READERS["run.json"]),
    ("run.json", changed('"repeats": 3', '"repeats": "3"'), "repeats", READERS["run.json"]),
    ("lab.reference.parquet", CUT_OFF, "cannot be read as Parquet", READERS["lab.reference.parquet"]),
    ("lab.reference.parquet", lambda _: b"", "cannot be read as Parquet", READERS["lab.reference.parquet"]),
    ("lab.reference.parquet", NOT_UTF8, "cannot be read as Parquet", READERS["lab.reference.parquet"]),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout beside two runs and a reference."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("bench", "images", "runner", "reports"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in PROJECT.glob("*.*"):
        if path.is_file():
            shutil.copy(path, folder)
    make_run(folder / "results" / "run", repeats=3)
    make_run(folder / "results" / "other", repeats=3)
    reference = to_bytes(reference_of([folder / "results" / "run"], "lab", "0.1.0").reference)
    (folder / "references").mkdir()
    (folder / "references" / "lab.reference.parquet").write_bytes(reference)
    return folder


FILES = {
    "image.toml": "images/torch-2.13.0-cpu/image.toml",
    "framework.json": "bench/frameworks/torch/framework.json",
    "workload.json": "bench/workloads/cnn-cifar10.json",
    "run.json": "results/run/run.json",
    "lab.reference.parquet": "references/lab.reference.parquet",
}


@pytest.fixture(scope="module")
def driver(copy: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {"DLBENCH_REFERENCES": "references", "PATH": "/usr/bin:/bin", "HOME": str(copy)}
    # The runs were made by this installation.
    environment |= {"XDG_CACHE_HOME": str(cache_folder().parent), "XDG_DATA_HOME": str(data_folder().parent)}
    command = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdin=PIPE, stdout=PIPE, stderr=STDOUT, text=True
    ) as process:
        yield process


def answers(driver: subprocess.Popen[str], commands: list[list[str]]) -> list[tuple[int, str, str | None]]:
    places = {
        "RUN": "results/run",
        "OTHER": "results/other",
        "PAGE": "page.out",
        "REFERENCE": FILES["lab.reference.parquet"],
    }
    assert driver.stdin is not None
    assert driver.stdout is not None
    print(
        json.dumps([[places.get(word, word) for word in command] for command in commands]),
        file=driver.stdin,
        flush=True,
    )
    return [tuple(answer) for answer in json.loads(driver.stdout.readline())]


# Every second is for the slow tests: each starts a dozen commands.
@pytest.mark.parametrize(
    ("name", "damage", "words", "commands"),
    [pytest.param(*each, id=f"{each[0]}-{at}", marks=[pytest.mark.slow] * (at % 2)) for at, each in enumerate(DAMAGES)],
)
def test_a_mistake_in_a_file_is_one_sentence_from_every_command_that_reads_it(
    copy: Path,
    driver: subprocess.Popen[str],
    name: str,
    damage: Callable[[bytes], bytes],
    words: str,
    commands: list[list[str]],
) -> None:
    path = copy / FILES[name]
    whole = path.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    path.write_bytes(damaged)
    try:
        for command, (code, stderr, crash) in zip(commands, answers(driver, commands), strict=True):
            said = (command, code, stderr, crash)
            assert (code, crash) == (2, None), said
            assert stderr.startswith("runner: "), said
            assert stderr.count("\n") == 1, said
            assert FILES[name] in stderr, said
            assert words in stderr, said
    finally:
        path.write_bytes(whole)
