"""Each command in each situation: one code has one meaning. The machine has no engine, no GPU and no package index."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from runner.cli.main import app
from runner.engines.process.host import HostEngine
from tests.fixtures.contributions import contribution
from tests.fixtures.mounts import tmpfs
from tests.unit.runner.cli.test_folders import CELLS, IMAGE, WORDS, commands

OK, FOUND, USAGE, OPEN, CANNOT_BEGIN = 0, 1, 2, 3, 4
DEAD = "http://127.0.0.1:9"

# Command -> its words and its code. RUNS has the runs d1, d2 and slow; RO can only be read; NEW is to be made; COLLECTION has a bundle.
# A command stands here with each code that it can have on such a machine; those that measure have theirs in tests of their own.
TABLE: dict[str, list[tuple[str, int]]] = {
    "matrix": [
        (f"{CELLS} --out NEW --dry-run", OK),
        ("--images no-such --gpus none", USAGE),
        ("--resume no-such --out RUNS", USAGE),
        ("--data NEW", USAGE),
        (f"{CELLS} --repeats 1 --out NEW", CANNOT_BEGIN),
        ("--gpus 3 --dry-run", CANNOT_BEGIN),
        ("--engine docker --gpus none --dry-run", CANNOT_BEGIN),
        ("--least-gpus 1 --dry-run", CANNOT_BEGIN),
        (f"{CELLS} --repeats 1 --out RO/new", CANNOT_BEGIN),
        (f"{CELLS} --repeats 1 --out RO", CANNOT_BEGIN),
        ("--nodes ssh:NEW --dry-run", USAGE),
    ],
    "import": [
        ("BUNDLE --out NEW", OK),
        ("NEW --out NEW", USAGE),
        ("RUNS/d1/run.json --out NEW", USAGE),
        ("BUNDLE --out RO", CANNOT_BEGIN),
    ],
    "gpu-kit": [("NEW", OK), ("RO/kit", CANNOT_BEGIN), ("RO", CANNOT_BEGIN)],
    "share": [
        ("d1 --yes -o NEW --out RUNS", OK),
        ("no-such --yes -o NEW --out RUNS", USAGE),
        ("d1 -o NEW --out RUNS", USAGE),
        ("d1 --yes -o RO/bundle --out RUNS", CANNOT_BEGIN),
        ("d1 --yes -o RO --by me --out RUNS", CANNOT_BEGIN),
    ],
    "report": [
        ("--out RUNS -o NEW", OK),
        ("--out RUNS --text", OK),
        ("no-such --out RUNS", USAGE),
        ("--out NEW", USAGE),
        ("--out RUNS -o RO/report.html", CANNOT_BEGIN),
    ],
    "compare": [
        ("d1 d2 --out RUNS", OK),
        ("d1 slow --out RUNS", FOUND),
        ("d1 no-such --out RUNS", USAGE),
        ("d1 d2 --out RUNS --margin 0.1", OPEN),
    ],
    "blame": [
        (f"{IMAGE} {IMAGE} --workloads resnet50-features", USAGE),
        (f"{IMAGE} no-such --workloads resnet50-features", USAGE),
    ],
    "history": [("--out RUNS", FOUND), ("--out NEW", USAGE)],
    "rosetta": [("cnn-cifar10 torch jax", OK), ("cnn-cifar10 torch no-such", USAGE)],
    "verify": [
        ("--run d1 --out RUNS", OPEN),
        ("--run d1 --references REFERENCES --out RUNS", OPEN),
        ("--run d2 --references REFERENCES --out RUNS", OK),
        ("--run slow --references REFERENCES --out RUNS", FOUND),
        ("--run no-such --out RUNS", USAGE),
        ("--run d1 --run d2 --level 2 --out RUNS", USAGE),
        ("--python NEW", USAGE),
        ("--gpus 3 --out NEW", CANNOT_BEGIN),
        ("--each-gpu --least-gpus 1 --out NEW", CANNOT_BEGIN),
        ("--level 1 --gpus 3", CANNOT_BEGIN),
        ("--level 1 --least-gpus 1", CANNOT_BEGIN),
        (f"--gpus none --engine venv --image {IMAGE} --workloads resnet50-features --out NEW", CANNOT_BEGIN),
        (f"--gpus none --engine docker --image {IMAGE} --workloads resnet50-features --out NEW", CANNOT_BEGIN),
        (f"--run d1 --references {DEAD} --out RUNS", CANNOT_BEGIN),
        ("--run d1 --junit RO/verify.xml --out RUNS", CANNOT_BEGIN),
        ("--run d1 --markdown RO/verify.md --out RUNS", CANNOT_BEGIN),
        ("--run d1 --prometheus RO/verify.prom --out RUNS", CANNOT_BEGIN),
    ],
    "reference save": [
        ("d1 --name lab --out RUNS", OK),
        ("no-such --name lab --out RUNS", USAGE),
        ("d1 --name lab --references RO --out RUNS", CANNOT_BEGIN),
        ("d1 --name lab --references RO/new --out RUNS", CANNOT_BEGIN),
    ],
    "reference list": [("", OK), ("--references RUNS/d1/run.json", USAGE), (f"--references {DEAD}", CANNOT_BEGIN)],
    "reference show": [("published", OK), ("no-such", USAGE), ("lab --references REFERENCES", OK)],
    "reference diff": [
        ("lab lab --references REFERENCES", OK),
        ("lab no-such --references REFERENCES", USAGE),
    ],
    "reference export": [
        ("lab -o NEW --references REFERENCES", OK),
        ("no-such -o NEW", USAGE),
        ("lab -o RO/new --references REFERENCES", CANNOT_BEGIN),
    ],
    "reference import": [
        ("FILE --references NEW", OK),
        ("NEW", USAGE),
        ("FILE --references RO", CANNOT_BEGIN),
        (f"{DEAD}/a.reference.parquet", CANNOT_BEGIN),
        ("http://no-such-host.invalid/a.reference.parquet", CANNOT_BEGIN),
    ],
    "reference judge": [
        ("COLLECTION", OK),
        ("COLLECTION FIRST", OPEN),
        ("COLLECTION --changes NEW", USAGE),
        ("BAD", FOUND),
        ("NEW", USAGE),
        ("COLLECTION --markdown RO/comment.md", CANNOT_BEGIN),
    ],
    "reference index": [("COLLECTION -o NEW", OK), ("NEW -o NEW", USAGE), ("COLLECTION -o RO/index", CANNOT_BEGIN)],
    "gpus": [("", OK)],
    "doctor": [("--out NEW", FOUND)],
    "images list": [("", OK)],
    "images show": [(IMAGE, OK), ("no-such", USAGE)],
    "images check": [
        (IMAGE, OK),
        ("no-such", USAGE),
        ("torch-2.9.1-cu128 --architecture aarch64", FOUND),
        ("--strict", FOUND),
    ],
    "images build": [(IMAGE, CANNOT_BEGIN), ("no-such", USAGE)],
    "images reproduce": [(IMAGE, CANNOT_BEGIN)],
    "images push": [(f"127.0.0.1:9/none {IMAGE}", CANNOT_BEGIN), ("127.0.0.1:9/none no-such", USAGE)],
    "images export": [(f"{IMAGE} --to NEW", CANNOT_BEGIN), ("no-such --to NEW", USAGE)],
    "images new": [(IMAGE, USAGE), ("no-version", USAGE)],
    "images lock": [(f"{IMAGE} --date yesterday", USAGE), ("no-such", USAGE)],
    "images update": [(f"{IMAGE} --date yesterday", USAGE)],
    "images pin": [(IMAGE, CANNOT_BEGIN), ("", USAGE), (f"{IMAGE} --registry 127.0.0.1:9/none", CANNOT_BEGIN)],
    "images try": [
        (f"{IMAGE} --workloads resnet50-features --limit 5", CANNOT_BEGIN),
        (f"{IMAGE} --workloads resnet50-features --engine docker", CANNOT_BEGIN),
        (f"{IMAGE} --workloads no-such", USAGE),
        (f"{IMAGE} --limit 0", USAGE),
        ("jax-0.10.2-cpu --compile-for no-such", USAGE),
    ],
    "images prune": [("--dry-run", OK), ("no-such", USAGE)],
    "images files": [("--help", OK)],
    "images ci-matrix": [("", OK), ("no-such", USAGE), ("--missing-from 127.0.0.1:9/none", CANNOT_BEGIN)],
    "list": [("workloads", OK), ("no-such", USAGE)],
    "completion": [("bash", OK), ("no-such", USAGE)],
    "nodes": [("--nodes ssh:NEW", USAGE), ("--nodes slurm:all", CANNOT_BEGIN), ("--nodes ray", CANNOT_BEGIN)],
    "complete": [("images sh", OK)],
}


@functools.cache
def scene() -> Path:
    """Runs, a saved reference, a bundle, and collections with a first bundle and with a damaged one."""
    folder = Path(tempfile.mkdtemp(prefix="dlbench-table-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, seed, level in (("d1", 1, 1.0), ("d2", 2, 1.0), ("slow", 3, 1.6)):
        contribution(folder / "runs" / name, seed=seed, level=level, repeats=5)
    for words in (
        f"reference save d1 --name lab --out {folder}/runs --references {folder}/references",
        f"share d1 --yes -o {folder}/bundle.tar.gz --out {folder}/runs",
        f"share d1 --yes -o {folder}/collection/ --by me --out {folder}/runs",
        f"share d1 --yes -o {folder}/bad/ --by me --out {folder}/runs",
        f"reference export lab -o {folder}/lab.reference.parquet --references {folder}/references",
    ):
        said = CliRunner().invoke(app, words.split())
        assert said.exit_code == 0, said.output
    for bundle in (folder / "bad").rglob("*.tar.gz"):
        bundle.write_bytes(b"no archive")
    return folder


@pytest.fixture
def poor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without an engine, a GPU and an index, and a disk that can only be read."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
        (tmp_path / name.lower()).mkdir()
    monkeypatch.setattr(HostEngine, "unavailable", lambda _: "no framework in this interpreter")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("no_proxy", "*")
    for variable, value in (("INDEX_URL", f"{DEAD}/"), ("RETRIES", "0"), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{variable}", value)
    monkeypatch.chdir(tmp_path)
    with tmpfs(tmp_path / "ro", "ro"):
        yield tmp_path


def test_every_command_stands_in_the_table() -> None:
    assert list(TABLE) == [name for name in commands(typer.main.get_command(app)) if name != "agent"] == list(WORDS)


@pytest.mark.parametrize("name", TABLE)
def test_a_command_has_the_code_of_its_situation(name: str, poor: Path) -> None:
    there = scene()
    wrong = {}
    rows = [*TABLE[name], ("--no-such-option", USAGE)]
    for number, (words, code) in enumerate(rows):
        places = {
            "RUNS": "runs",
            "COLLECTION": "collection",
            "BAD": "bad",
            "REFERENCES": "references",
            "BUNDLE": "bundle.tar.gz",
        }
        places |= {"FIRST": str(next((there / "collection").rglob("*.tar.gz")).relative_to(there))}
        places |= {"FILE": "lab.reference.parquet"}
        given = [word.replace("NEW", f"{poor}/new{number}").replace("RO", f"{poor}/ro") for word in words.split()]
        for place, path in places.items():
            given = [word.replace(place, f"{there}/{path}") for word in given]
        ended = CliRunner().invoke(app, [*name.split(), *given])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), (words, ended.exception)
        print(name, words, ended.exit_code, ended.output[-300:])
        if ended.exit_code != code:
            wrong[words] = int(ended.exit_code), ended.output[-1500:]
    assert wrong == {}
