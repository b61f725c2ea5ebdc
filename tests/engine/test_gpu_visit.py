"""The fifteen minutes of a GPU machine without Docker, against stand-ins for the GPU: so that the script is ready on the day."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from runner.paths import PROJECT
from tests.fixtures.weekly import only_with
from tests.stand_ins.fleet import FLEET_VARIABLE, FakeGpu, Fleet, build_library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    only_with("DLBENCH_FAULTS", "each step by itself, in the tests of Apptainer and of the kit"),
]
MOST_SECONDS = 540
# What the lent machine's Python has: the rest of the runner's needs travels.
THERE = ("numpy", "pyarrow", "typer", "rich", "jinja2", "packaging", "filelock", "psutil", "nvidia-ml-py", "pygments")
STEPS = ("facts", "wheels", "setup", "probe", "in-container-torch", "in-container-jax", "host", "checks", "cells")


def why_not() -> str:
    """Why it cannot run here; empty where it can."""
    if os.getuid() != 0:
        return "it makes nodes of devices, which takes root"
    missing = [name for name in ("unshare", "gcc", "apt-get", "xz", "make", "git") if shutil.which(name) is None]
    return f"there is no {', '.join(missing)}" if missing else ""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder whose first part is bound into the container as a whole: not /tmp, which is the container's own."""
    if reason := why_not():
        pytest.skip(f"left out, because {reason}")
    with tempfile.TemporaryDirectory(dir="/opt") as folder:
        # The user of a cell enters it, as it does the folders of the machine that is visited.
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def prepared(place: Path) -> tuple[Path, dict[str, str]]:
    """A checkout in which `prepare` has run, and the variables of the machine that is visited."""
    checkout, python = place / "checkout", place / "python"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, checkout / name, follow_symlinks=False)
    subprocess.run([sys.executable, "-m", "venv", str(python)], check=True)
    pins = [f"{name}=={metadata.version(name)}" for name in THERE]
    subprocess.run([str(python / "bin" / "pip"), "install", "-q", *pins], check=True)
    build_library(place)
    gcc = [
        "gcc",
        "-shared",
        "-fPIC",
        "-o",
        str(place / "libcuda.so.1"),
        str(PROJECT / "tests" / "stand_ins" / "cuda.c"),
    ]
    subprocess.run(gcc, check=True)
    h200 = FakeGpu("NVIDIA H200", capability="9.0", memory_bytes=143771 << 20, cpus="0-1")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    variables = {
        **os.environ,
        FLEET_VARIABLE: str(Fleet((h200,), driver="580.159.04").write(place / "fleet")),
        "DLBENCH_APPTAINER": str(place / "apptainer"),
        "WORK": str(place / "work"),
        "PYTHON": str(python / "bin" / "python3"),
        "PY": version,
        "NUMPY": metadata.version("numpy"),
        "SECONDS_ALL": str(MOST_SECONDS),
    }
    ended = subprocess.run(
        [".ci/gpu-visit", "prepare"],
        cwd=checkout,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return checkout, variables


@pytest.mark.parametrize("visit", [1, 2])
def test_each_step_of_the_visit_has_its_turn_and_what_it_left_comes_back(
    visit: int, place: Path, prepared: tuple[Path, dict[str, str]]
) -> None:
    checkout, variables = prepared
    out = place / f"out-{visit}"
    out.mkdir()
    namespace = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        str(PROJECT / "tests" / "stand_ins" / "gpu_namespace.sh"),
    ]
    libraries = [str(place / "libcuda.so.1"), str(place / "libnvidia-ml.so.1")]
    began = time.monotonic()
    ended = subprocess.run(
        [*namespace, str(place / f"namespace-{visit}"), *libraries, "--", "bash", ".gpu/gpu-visit", "run"],
        cwd=checkout, env={**variables, "OUT": str(out)}, capture_output=True, text=True, check=False, timeout=MOST_SECONDS + 60,
    )  # fmt: skip
    assert time.monotonic() - began < MOST_SECONDS, ended.stderr[-2000:]
    summary = (out / "summary.txt").read_text()
    assert re.findall(r"^ *\d+ s  ([\w-]+): ", summary, re.M) == list(STEPS), summary
    assert re.search(r"^ *\d+ s  setup: exit 0 ", summary, re.M), summary
    # Inside the container, as another user without capabilities, CUDA's driver shows the GPU; there is no framework in it.
    assert "uuids ['GPU-" in summary
    assert "CapEff:\t0000000000000000" in summary
    assert "FAIL torch-" in summary, "a cell began in the container, and its framework is not there"
    assert "FAIL jax-" in summary
    with tarfile.open(out / "all.tar.gz") as archive:
        names = archive.getnames()
    assert any(name.endswith("report.html") for name in names), "the product's own verdict comes back"
