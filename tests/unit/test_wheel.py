"""The project as a wheel, installed into an environment of its own and used in an empty folder with an empty home."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.catalog.images import load_catalog
from runner.images import installing
from runner.paths import PROJECT, find_program
from tests.fixtures.commands import fresh_runner
from tests.fixtures.cpus import take_own_cpus
from tests.fixtures.own_files import own_files

# They share an environment with the wheel.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]

Runner = Callable[..., "subprocess.CompletedProcess[str]"]
TREE = ("bench", "docs", "images", "reports", "runner")
FILES = ("Dockerfile.base", "LICENSE", "README.md", "compose.gpu.yml")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        PROJECT,
    ]
    subprocess.run(command, check=True, cwd=folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the host's lock, and the wheel."""
    uv, folder = str(find_program("uv")), tmp_path_factory.mktemp("installed") / "environment"
    python = folder / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, "--require-hashes", "-r", PROJECT / "requirements-host.lock"], check=True)
    subprocess.run([*install, "--no-deps", wheel], check=True)
    # As pip does: a compiled file lies in each folder that has Python files.
    (package,) = folder.glob("lib/python*/site-packages/dlbench_matrix")
    subprocess.run([python, "-m", "compileall", "-q", package / "images"], check=True)
    return folder


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Runner:
    """The command of the wheel, in an empty folder. Of this user's it knows PATH, and the cache where environments are."""
    (tmp_path / "home").mkdir()
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "COLUMNS": "200"}

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [str(environment / "bin" / "runner"), *arguments]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=variables | more,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=take_own_cpus,
        )

    return run


def test_a_wheel_holds_the_tracked_files_of_the_tree_as_they_are_and_adds_one_folder_to_the_packages(
    wheel: Path,
) -> None:
    words = ["git", "ls-files", "-z", *TREE, *FILES]
    tracked = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    with zipfile.ZipFile(wheel) as archive:
        held = {name: hashlib.sha256(archive.read(name)).digest() for name in archive.namelist()}
    own = {name: digest for name, digest in held.items() if ".dist-info/" not in name}
    # The line that Python reads at its start lies beside the folder.
    places = {name: f"dlbench_matrix/{name}" for name in tracked} | {"runner/wheel.pth": "dlbench_matrix.pth"}
    expected = {place: hashlib.sha256((PROJECT / name).read_bytes()).digest() for name, place in places.items()}
    assert own == expected


def test_the_catalog_the_plan_and_the_rosetta_stone_of_a_wheel_are_those_of_the_checkout(installed: Runner) -> None:
    listed = installed("images", "list", "--format", "json")
    assert {image["name"] for image in json.loads(listed.stdout)["images"]} == set(load_catalog())
    checked = installed("images", "check")
    assert checked.returncode == 0, checked.stderr
    planned = installed("matrix", "--dry-run", "--gpus", "none", "--engine", "venv", "--minutes", "10")
    assert planned.returncode == 0, planned.stderr
    assert "torch-2.13.0-cpu" in planned.stdout
    code = installed("rosetta", "cnn-cifar10", "torch", "jax")
    assert code.stdout == fresh_runner("rosetta", "cnn-cifar10", "torch", "jax").stdout
    kit = installed("gpu-kit", "kit")
    assert kit.returncode == 0, kit.stderr
    assert "copy it to a machine with a GPU" in kit.stdout


def test_references_are_judged_and_indexed_by_a_wheel_as_by_the_checkout(installed: Runner, tmp_path: Path) -> None:
    imported = installed("import", str(PROJECT / "docs" / "h200" / "fp32.tar.gz"))
    assert imported.returncode == 0, imported.stderr
    run = imported.stdout.strip()
    assert installed("report", run, "-o", "page.html").returncode == 0
    assert (tmp_path / "page.html").stat().st_size > 100_000
    shared = installed("share", run, "-o", "collection/", "--yes")
    bundles = shared.stdout.split()
    assert bundles
    assert installed("reference", "index", "collection", "-o", "site").returncode == 0
    assert (tmp_path / "site" / "index.html").is_file()
    judge = ("reference", "judge", "collection", *bundles)
    by_wheel = installed(*judge)
    by_checkout = subprocess.run(
        [sys.executable, "-m", "runner", *judge],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (by_wheel.returncode, by_wheel.stdout) == (by_checkout.returncode, by_checkout.stdout)


def test_a_cell_is_measured_by_a_wheel_in_an_empty_folder(installed: Runner, tmp_path: Path) -> None:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    words = ("--images", "torch-2.13.0-cpu", "--workloads", "mlp-mnist", "--frameworks", "torch", "--repeats", "1")
    # From where packages come is a setting of this machine, which its user's pip may have.
    site = {"XDG_CACHE_HOME": cache, **installing.pip_variables(sys.executable)}
    measured = installed("matrix", "--engine", "venv", "--gpus", "none", *words, **site)
    assert measured.returncode == 0, measured.stderr
    assert "ok   torch-2.13.0-cpu torch mlp-mnist" in measured.stderr + measured.stdout
    (run,) = (tmp_path / "results").iterdir()
    assert (run / "report.html").is_file()


def test_a_persons_own_network_is_measured_and_verified_by_a_wheel(installed: Runner, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(own_files()["residual_torch.py"])
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    site = {"XDG_CACHE_HOME": cache, **installing.pip_variables(sys.executable)}
    words = ("--workloads", "./net.py", "--gpus", "none")
    measured = installed("matrix", "--engine", "venv", "--images", "torch-2.13.0-cpu", "--repeats", "1", *words, **site)
    assert measured.returncode == 0, measured.stderr
    assert "ok   torch-2.13.0-cpu torch net@" in measured.stderr + measured.stdout
    # One's own interpreter: that of the environment.
    python = next(Path(cache).glob("dlbench/venvs/torch-2.13.0-cpu-*/bin/python"))
    mine = ("--python", str(python), "--against", "none", "--repeats", "2", "--most-repeats", "2", "--format", "json")
    verified = installed("verify", *words, *mine, **site)
    assert verified.returncode == 3, verified.stderr
    (finding,) = json.loads(verified.stdout)["findings"]
    assert (finding["verdict"], finding["parity_passed"]) == ("no-reference", True)
    assert finding["facts"]["workload"].startswith("net@")


def test_the_folder_that_a_cell_gets_on_its_path_holds_the_tree_and_no_package_of_the_host(environment: Path) -> None:
    words = "import os; from runner.paths import PROJECT; print(*sorted(os.listdir(PROJECT)))"
    listed = subprocess.run(
        [environment / "bin" / "python", "-c", words], capture_output=True, text=True, check=True, cwd="/"
    )
    assert listed.stdout.split() == sorted((*TREE, *FILES))
