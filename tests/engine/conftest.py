"""A real Docker Engine and a base image for it. Where none answers, the tests here are skipped, each by its name and
with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import PROJECT, Image, load_catalog
from runner.engines.base import Launch, ReadyImage, Slot
from runner.engines.docker.engine import RUN_LABEL, DockerEngine, DockerRunning
from runner.images.recipe import BASE_IMAGE_VARIABLE
from runner.machine import lease
from tests.engine.gpu_runs import Run

# The hooks by which a test is not run again with the same inputs.
from tests.fixtures.green import pytest_configure  # noqa: F401
from tests.stand_ins import fleet as stand_in
from tests.stand_ins.engine import OwnEngine, why_not
from tests.stand_ins.fleet import FakeGpu, Fleet

CPU_IMAGES = ("torch-2.13.0-cpu", "tensorflow-2.21.0-cpu", "jax-0.10.2-cpu")
CPU_SLOT = Slot("cpu", (), (0,), 512 << 20)


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    engine = DockerEngine()
    if reason := engine.unavailable():
        pytest.skip(f"left out, because {reason}")
    engine.sweep()
    return engine


@pytest.fixture(scope="session")
def client(engine: DockerEngine) -> Iterator[Any]:
    import docker

    client = docker.from_env(version="auto")
    yield client
    client.close()


@pytest.fixture(scope="session")
def catalog() -> dict[str, Image]:
    return load_catalog()


@pytest.fixture(scope="session")
def base_image(client: Any, catalog: dict[str, Image]) -> Iterator[str]:
    """The base image of the CPU images: what the environment names, else the registry's, else one made here of this
    machine.
    """
    import docker

    before = os.environ.get(BASE_IMAGE_VARIABLE)
    image = catalog[CPU_IMAGES[0]]
    base = (before or image.base_reference).replace("{python}", image.python)
    if before is None:
        try:
            client.images.get(base)
        except docker.errors.ImageNotFound:
            try:
                client.images.pull(base)
            except docker.errors.APIError:
                subprocess.run([PROJECT / ".ci" / "site-base", image.python], check=True)
                os.environ[BASE_IMAGE_VARIABLE] = "dlbench-site:{python}"
                base = f"dlbench-site:{image.python}"
    yield base
    if before is None:
        os.environ.pop(BASE_IMAGE_VARIABLE, None)


@pytest.fixture
def start(
    engine: DockerEngine, client: Any, base_image: str, catalog: dict[str, Image], tmp_path: Path
) -> Iterator[Callable[..., DockerRunning]]:
    """Start a Python script in a container as the engine starts a cell; what is left at the test's end is removed."""
    label = f"test-{tmp_path.name}-{os.getpid()}"
    image = catalog[CPU_IMAGES[0]]
    digest = str(client.images.get(base_image).id)

    def start(
        script: str, slot: Slot = CPU_SLOT, data: Path | None = None, arguments: tuple[str, ...] = ()
    ) -> DockerRunning:
        prepared = ReadyImage(image, digest, ("python", "-c", script))
        return engine.start(Launch(prepared, arguments, slot, label, tmp_path / "cache", data))

    yield start
    for container in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={label}"}, ignore_removed=True):
        container.remove(force=True)


# -- GPUs that are not there, on an engine of the tests' own


@pytest.fixture(scope="module")
def fleet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet") / "fleet"


@pytest.fixture(scope="module")
def own(fleet_file: Path) -> Iterator[OwnEngine]:
    if reason := why_not():
        pytest.skip(f"left out, because {reason}")
    Fleet((FakeGpu(),)).write(fleet_file)
    with OwnEngine(fleet_file) as engine:
        yield engine


@pytest.fixture(scope="module")
def tiny(own: OwnEngine) -> str:
    return own.make_tiny_image()


@pytest.fixture
def variables(
    own: OwnEngine, tiny: str, fleet_file: Path, nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    # The runs are read here too: both processes are one installation.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return stand_in.environment(nvml_library, fleet_file) | {
        "DOCKER_HOST": own.url,
        "DLBENCH_TINY": tiny,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        lease.VARIABLE: str(tmp_path / "leases"),
    }


@pytest.fixture
def run(variables: dict[str, str], tmp_path: Path) -> Iterator[Run]:
    """Start `runner matrix`; results go to tmp_path/results."""
    started = []

    def run(*options: str, **more: str) -> subprocess.Popen[str]:
        workloads = () if {"--workloads", "--resume"} & {*options} else ("--workloads", "cnn-cifar10,gru-imdb")
        command = [sys.executable, "-m", "tests.engine.tiny_runner", "matrix", "--out", str(tmp_path / "results")]
        once = () if "--repeats" in options else ("--repeats", "1")
        command += [*workloads, *once, *options]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(command, cwd=PROJECT, env=variables | more, **pipes)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()
