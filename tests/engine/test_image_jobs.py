"""The jobs of images.yml, each command as it stands there, with a real engine and a real registry; only GitHub's machine is a stand-in.

The image is of the toy framework: a few seconds to build and to check.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.paths import PROJECT
from tests.fixtures.registry import PASSWORD, USER, serve
from tests.fixtures.weekly import only_with
from tests.fixtures.workflows import Job, read

pytestmark = [pytest.mark.engine, pytest.mark.slow]

# A name for each process: what another run of these tests on this engine has is not removed here.
IMAGE = f"toy{os.getpid()}-2.4.6-cpu"
TOY = PROJECT / "tests" / "fixtures" / "toy_framework"
ADAPTER = """\
from bench.frameworks.toy import _loop


class Training(_loop.Training):
    WORKLOAD = "mlp-mnist"
"""
COPIED = (
    "bench",
    "runner",
    "reports",
    "images",
    "docs",
    "Dockerfile.base",
    "compose.gpu.yml",
    "pyproject.toml",
    "README.md",
    ".github",
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two images, the toy and Chainer's, whose files are in step."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        source = PROJECT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    for path in (folder / "images").glob("*/"):
        if path.name != "chainer-7.8.1-cpu":
            shutil.rmtree(path)
    shutil.copytree(TOY / "image", folder / "images" / IMAGE)
    toy = folder / "bench" / "frameworks" / "toy"
    shutil.copytree(TOY / "adapter", toy)
    # One check is enough: that of the workload which NumPy computes soonest.
    (toy / "gru_imdb.py").unlink()
    (toy / "cnn_cifar10.py").rename(toy / "_loop.py")
    (toy / "mlp_mnist.py").write_text(ADAPTER)
    declaration = json.loads((toy / "framework.json").read_text())
    (toy / "framework.json").write_text(json.dumps(declaration | {"uncounted": ["mlp-mnist"]}))
    program = folder / ".venv" / "bin" / "runner"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/bash\nPYTHONPATH={folder} exec {sys.executable} -P -m runner "$@"\n')
    program.chmod(0o755)
    (folder / ".gitignore").write_text("__pycache__/\n.venv/\n")
    seal = f"from runner.catalog.images import load_catalog as c; from runner.images.locking import write_seal; write_seal(c()[{IMAGE!r}])"
    for command in (
        [sys.executable, "-P", "-c", seal],
        [str(program), "images", "files"],
        ["git", "init", "--quiet"],
        ["git", "add", "--all"],
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--message", "first"],
    ):
        subprocess.run(
            command, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, check=True, capture_output=True
        )
    return folder


@pytest.fixture
def machine(client: Any, base_image: str, checkout: Path, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Run a job of images.yml with a registry; what is made of the image is removed."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sudo", "make"):
        (programs / name).write_text("#!/bin/bash\n")
        (programs / name).chmod(0o755)
    workflow = read("workflows/images.yml")

    def run(job: str, host: str, password: str = PASSWORD, fails: str = "nothing") -> Job:
        values = {
            "github.repository": "Team/Project",
            "github.server_url": "https://github.com",
            "github.event_name": "push",
            "github.actor": USER,
            "secrets.GITHUB_TOKEN": password,
            "inputs.images": "",
            "needs.plan.outputs.any": "true",
            "needs.plan.outputs.any-arm64": "true",
            "needs.plan.result": "success",
            "matrix.image": IMAGE,
            "matrix.machine": "ubuntu-24.04",
            "matrix.index": "",
        }
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(tmp_path),
            "DOCKER_CONFIG": str(tmp_path / "docker"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        here = workflow | {"env": {"REGISTRY": workflow["env"]["REGISTRY"].replace("ghcr.io", host)}}
        shutil.rmtree(checkout / "built", ignore_errors=True)
        return Job(checkout, values, environment, fails=fails).run(here, job)

    yield run
    # An image that a container has cannot be removed, and a job that was ended has left its own.
    for image in client.images.list(filters={"label": f"dlbench.image={IMAGE}"}):
        for container in client.containers.list(all=True, filters={"ancestor": image.id}):
            container.remove(force=True)
        client.images.remove(image.id, force=True)
    for image in client.images.list(filters={"reference": "127.0.0.1:*/team/project/*"}):
        for name in image.tags:
            client.images.remove(name)


def planned(job: Job) -> list[str]:
    assert job.green, job.log
    return [row["image"] for row in json.loads(job.values["steps.matrix.outputs.matrix"])["include"]]


@only_with("DLBENCH_FAULTS", "another job that ends red is tested with each change")
def test_a_refused_push_is_red_and_what_it_should_have_pushed_is_planned_and_published_by_a_later_run(
    machine: Callable[..., Job], checkout: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with serve(store, read_only=True, login=True) as host:
        assert planned(machine("plan", host)) == ["chainer-7.8.1-cpu", IMAGE]
        refused = machine("publish", host)
        assert not refused.green
        assert "could not be pushed" in refused.log
        assert not [action for action, _ in refused.used if "attest" in action]
    with serve(store, login=True) as host:
        # Nothing of the refused push is there, nor of a run that was cancelled.
        assert IMAGE in planned(machine("plan", host))
        # Pushed and not signed is not finished.
        assert not machine("publish", host, fails="actions/attest@").green
        assert IMAGE in planned(machine("plan", host))
        published = machine("publish", host)
        assert published.green, published.log
        signed = [given for action, given in published.used if "attest" in action]
        assert {given["subject-name"] for given in signed} == {f"{host}/team/project/{IMAGE}"}
        assert (checkout / signed[1]["sbom-path"]).is_file()
        assert planned(machine("plan", host)) == ["chainer-7.8.1-cpu"]
        pins = machine("pins", host)
        # The other image was never pushed: it is named, and this one is pinned.
        assert not pins.green
        assert "chainer-7.8.1-cpu" in pins.log
        digest = signed[0]["subject-digest"]
        assert f"@{digest}" in (checkout / "pins.patch").read_text()
        # A pin is no input of the image: to commit it builds nothing.
        assert IMAGE not in planned(machine("plan", host))
        wrong = machine("plan", host, password="another")
        assert not wrong.green
        assert "ci-matrix" not in "".join(wrong.scripts)
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=checkout, check=True)


def test_an_image_that_cannot_import_its_framework_is_red_and_gets_no_tag(
    machine: Callable[..., Job], checkout: Path, tmp_path: Path
) -> None:
    adapter = checkout / "bench" / "frameworks" / "toy" / "framework.py"
    adapter.write_text("import nobody_has_this\n" + adapter.read_text())
    store = tmp_path / "store"
    store.mkdir()
    with serve(store) as host:
        job = machine("publish", host)
        assert not job.green
        assert "nobody_has_this" in (checkout / "built" / f"{IMAGE}.json").read_text()
        assert IMAGE in planned(machine("plan", host))
    assert not (store / "docker" / "registry" / "v2" / "repositories").exists()
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=checkout, check=True)
