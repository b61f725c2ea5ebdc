"""Images of no catalog in real containers: fetched, pinned, looked into, measured, and refused with a sentence."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.engines import foreign_images
from runner.engines.apptainer import ApptainerEngine
from runner.engines.base import Settings
from runner.engines.docker.engine import RUN_LABEL, DockerEngine
from runner.engines.foreign import Looked
from runner.errors import EngineError
from runner.paths import PROJECT
from runner.results.rows import rows_of
from runner.results.store import read
from tests.fixtures.cpus import take_own_cpus
from tests.fixtures.pages import whole
from tests.fixtures.registry import PASSWORD, USER, serve
from tests.fixtures.weekly import drawn

# Its images and containers are named apart from those of the catalog.
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.xdist_group("foreign images"), pytest.mark.timeout(900)]

# Chainer needs NumPy only, so it is the smallest framework that there is.
_CHAINER = (
    "RUN python3 -m ensurepip && python3 -m pip install -q numpy==1.23.5 setuptools==65.5.1 wheel"
    " && python3 -m pip install -q --no-build-isolation chainer==7.8.1\n"
)
_CELLS = ("--workloads", "mlp-mnist", "--repeats", "2", "--gpus", "none")


@pytest.fixture(scope="module")
def build(client: Any) -> Iterator[Callable[[str, str], str]]:
    """Builds an image of a plain Dockerfile under a name, which goes at the end; the build's layers stay for the next test run."""
    names = set()

    def build(name: str, dockerfile: str) -> str:
        file = io.BytesIO(dockerfile.encode())
        client.images.build(fileobj=file, tag=name, network_mode="host", rm=True, forcerm=True)
        names.add(name)
        return f"docker:{name}"

    yield build
    for name in names:
        client.images.remove(name, force=True)


@pytest.fixture(scope="module")
def plain(build: Callable[[str, str], str], base_image: str) -> str:
    """A person's image: an entrypoint, a user and variables of its own."""
    more = (
        'ENTRYPOINT ["/bin/false"]\nUSER 4242\nENV MKL_NUM_THREADS=1 PYTHONPATH=/opt/own MY_SECRET=word\nWORKDIR /srv\n'
    )
    return build("foreign-chainer:1", f"FROM {base_image}\n{_CHAINER}{more}")


def look(address: str) -> Looked:
    return foreign_images("docker", Settings(foreign=(address,))).looked(address)


def run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runner", *words, "--out", str(tmp_path / "results")]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, preexec_fn=take_own_cpus)


def test_a_persons_image_is_looked_into_with_the_limits_of_a_cell(
    engine: DockerEngine, client: Any, plain: str
) -> None:
    found = look(plain)
    assert [(one.framework, one.version, one.device_kinds) for one in found.interior.frameworks] == [
        ("chainer", "7.8.1", ["cpu"])
    ]
    assert (found.interior.numpy, found.pinned) == ("1.23.5", client.images.get("foreign-chainer:1").id)
    assert found.bytes > 10**8
    assert not client.containers.list(all=True, filters={"label": f"{RUN_LABEL}=look"})


def test_what_is_inside_is_shown(engine: DockerEngine, plain: str) -> None:
    command = [sys.executable, "-m", "runner", "images", "show", plain]
    shown = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert "framework: chainer 7.8.1 for cpu" in shown
    assert "workloads: cnn-cifar10, cnn-mnist," in shown
    assert "(pinned by digest, no lock)" in shown
    assert "variables that steer it: MKL_NUM_THREADS=1\n" in shown
    assert "MY_SECRET" not in shown


def test_it_is_measured_beside_others_and_an_interrupted_run_goes_on_only_with_the_same_image(
    engine: DockerEngine, client: Any, build: Callable[[str, str], str], plain: str, tmp_path: Path
) -> None:
    absent = "docker:127.0.0.1:9/nothing:1"
    ended = run(tmp_path, "matrix", "--images", f"{plain},{absent}", *_CELLS, "--format", "json")
    assert ended.returncode == 0, ended.stderr
    (folder,) = (tmp_path / "results").glob("2*")
    manifest = json.loads((folder / "run.json").read_text())
    own = str(client.images.get("foreign-chainer:1").id)
    assert manifest["foreign"] == {plain: own}
    assert [skip["image"] for skip in manifest["skips"] if not skip["workload"]] == [absent]
    rows = rows_of(read([folder], "cells"))
    cells = [row for row in rows if row["status"] != "skipped"]
    assert [(row["image"], row["status"], row["engine"], row["image_digest"]) for row in cells] == [
        (plain, "ok", "docker", own)
    ] * 2
    assert {row["version_proof"] for row in cells} == {"not proved: pinned by digest, no lock"}
    environment = json.loads(cells[0]["environment_json"])
    assert environment["settings"]["threads_asked"] == 1
    assert "pinned by digest, no lock" in whole(folder / "report.html")

    for parcel in (folder / "repeats").glob("*.r2.*"):
        parcel.unlink()
    build("foreign-chainer:1", f"FROM {own}\nENV ANOTHER=1\n")
    moved = run(tmp_path, "matrix", "--resume", folder.name)
    assert moved.returncode == 2
    assert f"{plain} was {own} when the run began, and is sha256:" in moved.stderr
    client.images.get(own).tag("foreign-chainer", "1")
    again = run(tmp_path, "matrix", "--resume", folder.name)
    assert again.returncode == 0, again.stderr


# What one of two images has -> how the first difference that compare names begins.
PLANTED = {
    "threads": ("ENV OMP_NUM_THREADS=1\n", "setting variable OMP_NUM_THREADS none → 1"),
    "allocator": (
        "ENV LD_PRELOAD=libc_malloc_debug.so.0\n",
        "setting variable LD_PRELOAD none → libc_malloc_debug.so.0",
    ),
    "configuration": (
        "RUN echo NCCL_P2P_DISABLE=1 > /etc/nccl.conf\n",
        "setting file /etc/nccl.conf none → NCCL_P2P_DISABLE=1",
    ),
    "release": ("RUN python3 -m pip install -q --no-build-isolation chainer==7.8.0\n", "framework 7.8.1 → 7.8.0"),
}


# Each commit has a pair: a cell takes half a minute.
PAIRS = [pytest.param(pair, id="-".join(pair)) for pair in (("threads", "allocator"), ("configuration", "release"))]


@pytest.mark.alone  # beside others the windows of a cell scatter so far that it is compared with nothing
@pytest.mark.parametrize("pair", drawn("DLBENCH_FAULTS", 2, PAIRS))
def test_one_planted_thing_is_the_first_difference_of_two_images(
    engine: DockerEngine, build: Callable[[str, str], str], base_image: str, tmp_path: Path, pair: tuple[str, str]
) -> None:
    first = build("foreign-planted:none", f"FROM {base_image}\n{_CHAINER}")
    others = {name: build(f"foreign-planted:{name}", f"FROM foreign-planted:none\n{PLANTED[name][0]}") for name in pair}
    cells = ("--workloads", "mlp-mnist", "--repeats", "1", "--gpus", "none", "--format", "json")
    ended = run(tmp_path, "matrix", "--images", ",".join((first, *others.values())), *cells)
    assert ended.returncode == 0, ended.stderr
    found = {}
    for name, image in others.items():
        compared = run(tmp_path, "compare", first, image, "--format", "json")
        assert compared.stdout, compared.stderr
        (row,) = json.loads(compared.stdout)["rows"]
        found[name] = row["differences"].startswith(PLANTED[name][1]) or row["differences"]
    assert found == dict.fromkeys(pair, True)


def test_it_is_verified_beside_the_pinned_image_in_one_run(engine: DockerEngine, plain: str, tmp_path: Path) -> None:
    words = ["--engine", "venv", "--workloads", "mlp-mnist", "--gpus", "none", "--repeats", "2", "--most-repeats", "2"]
    ended = run(
        tmp_path, "verify", "--image", plain, *words, "--format", "json", "--references", str(tmp_path / "none")
    )
    assert ended.stdout, ended.stderr
    assert "measured beside it: chainer-7.8.1-cpu;" in ended.stderr
    (finding,) = json.loads(ended.stdout)["findings"]
    assert (finding["facts"]["image"], finding["facts"]["engine"]) == (plain, "docker")
    assert finding["pinned"]["image"] == "chainer-7.8.1-cpu"
    assert finding["pinned"]["ratio"] > 0


def test_an_image_of_a_registry_is_pulled_once_and_pinned_by_the_registrys_digest(
    engine: DockerEngine, client: Any, plain: str, tmp_path: Path
) -> None:
    with serve(tmp_path, login=True) as host:
        client.login(USER, PASSWORD, registry=host)
        client.images.get("foreign-chainer:1").tag(f"{host}/team/it", "2")
        assert "error" not in client.images.push(f"{host}/team/it", "2")
        client.images.remove(f"{host}/team/it:2")
        address = f"docker:{host}/team/it:2"
        with pytest.raises(EngineError, match="`docker login` names another one"):
            look(address)
        said = client.images.pull(f"{host}/team/it", "2", auth_config={"username": USER, "password": PASSWORD})
        found = look(address)
        assert found.pinned in said.attrs["RepoDigests"]
        assert found.pinned.startswith(f"{host}/team/it@sha256:")
        assert look(f"docker:{found.pinned}").pinned == found.pinned
        client.images.remove(f"{host}/team/it:2")
        with pytest.raises(EngineError, match="`docker login` names another one"):
            look(address)
    (tmp_path / "open").mkdir()
    with serve(tmp_path / "open") as host:
        client.images.get("foreign-chainer:1").tag(f"{host}/team/it", "2")
        assert "error" not in client.images.push(f"{host}/team/it", "2")
        client.images.remove(f"{host}/team/it:2")
        assert look(f"docker:{host}/team/it:2").pinned.startswith(f"{host}/team/it@sha256:")
        client.images.remove(f"{host}/team/it:2")
        with pytest.raises(EngineError, match="the registry does not have it.*look at the name and the tag"):
            look(f"docker:{host}/team/it:3")
    with pytest.raises(EngineError, match=r"the registry does not answer.*docker:\./FILE\.tar"):
        look(f"docker:{host}/team/it:2")


def test_a_file_of_docker_save_is_an_image(engine: DockerEngine, client: Any, plain: str, tmp_path: Path) -> None:
    image = client.images.get("foreign-chainer:1")
    with open(tmp_path / "my it.tar", "wb") as file:
        file.writelines(image.save())
    assert look(f"docker:{tmp_path / 'my it.tar'}").pinned == image.id


def test_a_sif_of_no_catalog_is_measured(engine: DockerEngine, client: Any, plain: str, tmp_path: Path) -> None:
    if reason := ApptainerEngine().unavailable():
        pytest.skip(f"left out, because Apptainer cannot be used: {reason}")
    with open(tmp_path / "it.tar", "wb") as file:
        file.writelines(client.images.get("foreign-chainer:1").save())
    build = ["apptainer", "--quiet", "build", "--disable-cache", "--mksquashfs-args", "-comp lz4"]
    subprocess.run([*build, tmp_path / "my it.sif", f"docker-archive:{tmp_path / 'it.tar'}"], check=True)
    address = f"sif:{tmp_path / 'my it.sif'}"
    cells = ("--workloads", "mlp-mnist", "--repeats", "1", "--gpus", "none", "--engine", "venv", "--format", "json")
    ended = run(tmp_path, "matrix", "--images", address, *cells)
    assert ended.returncode == 0, ended.stderr
    (folder,) = (tmp_path / "results").glob("2*")
    (row,) = [row for row in rows_of(read([folder], "cells")) if row["status"] != "skipped"]
    digest = f"sha256:{hashlib.sha256((tmp_path / 'my it.sif').read_bytes()).hexdigest()}"
    assert (row["image"], row["status"], row["engine"], row["image_digest"]) == (address, "ok", "apptainer", digest)
    assert row["version_proof"] == "not proved: pinned by digest, no lock"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("RUN rm -rf /usr/local/bin/python* /usr/bin/python*\n", "it has no Python"),
        ("", "has no NumPy, which every cell needs"),
        (
            "RUN printf 'print(\"x\" * (2 << 20))' > /usr/local/lib/python3.11/site-packages/sitecustomize.py\n",
            "more than 1 MiB",
        ),
        ("ENV LD_PRELOAD=/nothing.so PYTHONHOME=/nothing\n", "did not say what it has (exit 1)"),
    ],
)
def test_an_image_that_cannot_be_used_says_why(
    engine: DockerEngine, build: Callable[[str, str], str], base_image: str, more: str, words: str
) -> None:
    address = build("foreign-broken:1", f"FROM {base_image}\n{more}")
    with pytest.raises(EngineError) as caught:
        look(address)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["bad.sif", "begins.sif", "none.sif", "bad.tar", "none.tar"])
def test_a_file_that_is_no_image_is_a_mistake_of_the_command_line(
    engine: DockerEngine, tmp_path: Path, name: str
) -> None:
    if name.endswith(".sif") and (reason := ApptainerEngine().unavailable()):
        pytest.skip(f"left out, because Apptainer cannot be used: {reason}")
    (tmp_path / "bad.sif").write_bytes(b"x" * 5000)
    (tmp_path / "begins.sif").write_bytes(b"#!/usr/bin/env run-singularity".ljust(32) + b"SIF_MAGIC")
    (tmp_path / "bad.tar").write_bytes(b"x" * 5000)
    address = f"{'sif' if name.endswith('.sif') else 'docker'}:{tmp_path / name}"
    for words in (["matrix", "--dry-run", "--images", address], ["verify", "--image", address]):
        ended = run(tmp_path, *words, "--gpus", "none")
        assert (ended.returncode, name in ended.stderr) == (2, True), ended.stderr
    # Beside an image that can run it is skipped, with the reason.
    both = ("--images", f"torch-2.13.0-cpu,{address}", "--engine", "venv")
    beside = run(tmp_path, "matrix", "--dry-run", *both, "--gpus", "none")
    assert (beside.returncode, name in beside.stdout) == (0, True), beside.stderr


def test_an_image_without_a_file_has_no_python(engine: DockerEngine, client: Any) -> None:
    nothing = io.BytesIO()
    tarfile.open(fileobj=nothing, mode="w").close()
    client.api.import_image_from_data(nothing.getvalue(), "foreign-empty", "1")
    try:
        with pytest.raises(EngineError, match="it has no Python: install one in it"):
            look("docker:foreign-empty:1")
    finally:
        client.images.remove("foreign-empty:1")
