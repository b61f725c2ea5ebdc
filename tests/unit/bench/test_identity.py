"""What a digest covers: the sources that a cell runs, and no others."""

from __future__ import annotations

import ast
import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import identity, rules
from runner.catalog.images import PROJECT, load_catalog
from runner.images.recipe import bench_files

BENCH = PROJECT / "bench"


def computed() -> list[tuple[str, str]]:
    """Every (framework, workload) that there is an adapter for."""
    modules = {name: rules.module_of(name, rules.workload_declaration(name)) for name in rules.workload_names()}
    return [
        (framework, workload)
        for framework in rules.framework_names()
        for workload, module in modules.items()
        if rules.adapter_path(framework, module)
    ]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bench in a folder where it may be edited."""
    folder = tmp_path_factory.mktemp("edited") / "bench"
    shutil.copytree(BENCH, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def digests(folder: Path) -> dict[tuple[str, str], str]:
    return dict(identity.code_digests(computed(), str(folder)))


@pytest.fixture(scope="module")
def before(copy: Path) -> dict[tuple[str, str], str]:
    return digests(copy)


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("timing.py", lambda framework, workload: True),
        ("data/cifar10.py", lambda framework, workload: True),
        ("frameworks/mindspore/framework.py", lambda framework, workload: framework == "mindspore"),
        ("frameworks/flux/mlp_mnist.jl", lambda framework, workload: framework == "flux"),
        ("frameworks/julia/bench.jl", lambda framework, workload: framework in ("flux", "knet")),
        ("frameworks/theano/framework.py", lambda framework, workload: framework in ("lasagne", "keras2_theano")),
        ("frameworks/jax/_mixed.py", lambda framework, workload: framework in ("jax", "keras_jax")),
        ("workloads/gru-imdb.json", lambda framework, workload: workload == "gru-imdb"),
        ("workloads/gru_imdb.py", lambda framework, workload: workload == "gru-imdb" or framework == "none"),
        ("workloads/densenet121-chestxray.json", lambda framework, workload: workload.startswith("densenet121")),
    ],
)
def test_an_edit_changes_the_digests_of_the_cells_that_run_it_and_no_other(
    copy: Path, before: dict[tuple[str, str], str], edited: str, changed
) -> None:
    path = copy / edited
    text = path.read_text()
    path.write_text(text + "\n")
    try:
        after = digests(copy)
    finally:
        path.write_text(text)
    differing = {pair for pair in before if before[pair] != after[pair]}
    assert differing == {pair for pair in before if changed(*pair)}
    assert differing


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    """The names that a Python file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update([node.module], (f"{node.module}.{alias.name}" for alias in node.names))
    return tuple(names)


@pytest.mark.parametrize("framework", rules.framework_names())
def test_what_a_cell_imports_at_its_start_is_inside_its_digest(framework: str) -> None:
    """From the adapter on, along imports outside of functions. A real run's modules are held in tests/contract."""
    for workload in [workload for name, workload in computed() if name == framework]:
        files = identity.code_files(framework, workload)
        module = rules.module_of(workload, rules.workload_declaration(workload))
        adapter = Path(rules.adapter_path(framework, module) or "")
        assert adapter.relative_to(BENCH).as_posix() in files
        waiting, seen = [adapter, BENCH / "__main__.py"], set()
        while waiting:
            path = waiting.pop()
            if path in seen or path.suffix != ".py":
                continue
            seen.add(path)
            assert path.relative_to(BENCH).as_posix() in files, (framework, workload)
            for name in imported(path):
                found = PROJECT.joinpath(*name.split(".")).with_suffix(".py")
                if name.startswith("bench.") and "frameworks" not in name and found.is_file():
                    waiting.append(found)


def test_an_image_holds_all_that_its_cells_run_and_not_the_other_frameworks(tmp_path: Path) -> None:
    modules = {name: rules.module_of(name, rules.workload_declaration(name)) for name in rules.workload_names()}
    for image in load_catalog().values():
        files = set(bench_files(image))
        for framework, workload in computed():
            if framework in image.frameworks:
                assert set(identity.code_files(framework, workload)) <= files, (image.name, workload)
        assert ("frameworks/torch/framework.py" in files) == ("torch" in image.frameworks)
    assert modules


def test_the_digest_in_an_image_is_the_one_of_the_checkout(tmp_path: Path) -> None:
    image = load_catalog()["jax-0.10.2-cpu"]
    for name in bench_files(image):
        (tmp_path / "bench" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BENCH / name, tmp_path / "bench" / name)
    script = "from bench import identity; print(identity.code_sha256('keras_jax', 'gru-imdb'))"
    inside = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert inside.stdout.split() == [identity.code_sha256("keras_jax", "gru-imdb")]


def test_caches_and_hidden_files_are_no_sources(copy: Path) -> None:
    before = identity.source_digest(str(copy))
    for name in (".hidden", "x.part", "old.pyc", "data/__pycache__/x.cpython-311.pyc"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("x")
    assert identity.source_digest(str(copy)) == before


def test_a_file_that_no_parser_takes_changes_the_digest_and_stops_nothing(copy: Path) -> None:
    before = identity.code_sha256("torch", "gru-imdb", str(copy))
    path = copy / "frameworks" / "torch" / "gru_imdb.py"
    text = path.read_text()
    path.write_text("from bench.workloads import (\n")
    assert identity.code_sha256("torch", "gru-imdb", str(copy)) != before
    path.write_text(text)
    declared = copy / "frameworks" / "torch" / "framework.json"
    words = declared.read_text()
    declared.write_text("{")
    assert identity.code_sha256("torch", "gru-imdb", str(copy)) != before
    declared.write_text(words)
    assert json.loads(words)
    assert identity.code_sha256("torch", "gru-imdb", str(copy)) == before
