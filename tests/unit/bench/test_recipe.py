"""The recipe "add a framework" of CONTRIBUTING.md, followed in a copy of the project: it ends in a ranked cell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.engines.process.interpreters import find_interpreter

TREE = ("bench", "docs", "images", "reports", "runner")
NAME = "plain-2.4.6-cpu"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which the command has made the files."""
    copy = tmp_path_factory.mktemp("project")
    for name in TREE:
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "compose.gpu.yml", "Dockerfile.base"):
        shutil.copy(PROJECT / name, copy / name)
    # A cell of this test needs no more than a rank does.
    table = copy / "bench" / "rules.py"
    table.write_text(table.read_text().replace('"quick": (10, 30, 0.01)', '"quick": (10, 10, 1e-9)'))
    made = python(copy, "runner", "images", "new", NAME, "numpy==2.4.6")
    assert made.returncode == 0, made.stderr
    files = sorted(Path(line).relative_to(copy).as_posix() for line in made.stdout.splitlines())
    assert files == [
        *(f"bench/frameworks/plain/{name}" for name in ("__init__.py", "cnn_cifar10.py", "framework.json")),
        *(f"bench/frameworks/plain/{name}" for name in ("framework.py", "gru_imdb.py")),
        *(f"images/{NAME}/{name}" for name in ("image.toml", "requirements.in")),
    ]
    return copy


def python(project: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(project)} | more
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_the_files_are_a_framework_and_an_image_of_the_catalog(project: Path) -> None:
    script = (
        "from runner.catalog import frameworks, images\n"
        f"print(*images.load_catalog(locks=False)[{NAME!r}].frameworks)\n"
        "plain = frameworks.load_frameworks()['plain']\n"
        "print(*plain.uncounted, *sorted(plain.modules))\n"
    )
    command = [sys.executable, "-P", "-c", script]
    environment = os.environ | {"PYTHONPATH": str(project)}
    ended = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["plain", "cnn-cifar10", "gru-imdb", "cnn_cifar10", "gru_imdb"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((NAME,), "is there already; name another image"),
        (("torch-9.0-cu130",), "an image with CUDA is a neighbour's folder"),
        (("../x-1.0-cpu",), "write FRAMEWORK-VERSION-cpu"),
    ],
)
def test_a_name_that_is_there_or_none_is_refused(project: Path, words: tuple[str, ...], said: str) -> None:
    ended = python(project, "runner", "images", "new", *words)
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr


def test_another_image_of_a_known_framework_leaves_its_folder_as_it_is(project: Path) -> None:
    ended = python(project, "runner", "images", "new", "tinygrad-99.0-cpu")
    folder = project / "images" / "tinygrad-99.0-cpu"
    try:
        assert ended.stdout.split() == [str(folder / "image.toml"), str(folder / "requirements.in")]
        assert (folder / "requirements.in").read_text() == "tinygrad==99.0\nnumpy\n"
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("declared", "counts", "said"),
    [
        (
            [],
            "",
            'updates() is None: return the optimiser\'s own count of its steps, or write "uncounted": ["gru-imdb"]',
        ),
        (
            ["gru-imdb"],
            "    def updates(self):\n        return 3\n",
            "updates() is 3, and framework.json names the workload",
        ),
    ],
)
def test_the_check_fails_where_the_host_would_refuse_every_cell(
    project: Path, tmp_path: Path, declared: list[str], counts: str, said: str
) -> None:
    shutil.copytree(project / "bench", tmp_path / "bench")
    folder = tmp_path / "bench" / "frameworks" / "plain"
    fields = json.loads((folder / "framework.json").read_text())
    (folder / "framework.json").write_text(json.dumps(fields | {"uncounted": declared}))
    with (folder / "gru_imdb.py").open("a") as file:
        file.write(f"\n{counts}")
    ended = python(tmp_path, "bench", "check", "gru-imdb", "--framework", "plain")
    (failed,) = json.loads(ended.stdout)["failed"]
    assert said in failed


@pytest.mark.slow
@pytest.mark.alone  # a cell is ranked only where it was measured steadily
@pytest.mark.timeout(900)
def test_the_recipe_ends_in_a_ranked_cell(project: Path, tmp_path: Path) -> None:
    if not hasattr(find_interpreter("3.11"), "path"):
        pytest.skip("left out, because there is no Python 3.11 for the image's environment")
    checked = python(project, "bench", "check", "gru-imdb", "--framework", "plain")
    assert json.loads(checked.stdout)["failed"] == [], checked.stderr
    for words in (["lock", NAME], ["files"], ["check"]):
        ended = python(project, "runner", "images", *words)
        assert ended.returncode == 0, ended.stderr + ended.stdout
    cells = ("--images", "plain-*", "--workloads", "gru-imdb", "--repeats", "2", "--gpus", "none", "--engine", "venv")
    measured = python(project, "runner", "matrix", *cells, "--out", str(tmp_path / "runs"))
    assert measured.returncode == 0, measured.stderr
    answer = python(project, "runner", "report", "latest", "--out", str(tmp_path / "runs"), "--format", "json")
    (cell,) = [cell for group in json.loads(answer.stdout)["answers"] for cell in group["cells"]]
    assert (cell["image"], cell["ranked"], cell["standing"]) == (NAME, True, "first"), cell
