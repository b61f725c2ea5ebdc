"""A real registry: digests of base images and of built ones are asked for and written down, and images come back by them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import ImageNotFound

from runner.catalog.images import IMAGES, PROJECT, Image, load_catalog
from runner.engines.docker.engine import DockerEngine
from runner.images import build, lock
from runner.images import recipe as recipes
from runner.images import registry as shelf

pytestmark = pytest.mark.engine

CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
log: {{level: error}}
"""


@pytest.fixture(scope="module")
def registry(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry of its own on this machine, which Docker takes without encryption."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("left out, because there is no docker-registry program (Debian's package docker-registry)")
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config.yml").write_text(CONFIG.format(folder=folder, port=port))
    with subprocess.Popen([program, "serve", str(folder / "config.yml")], stderr=subprocess.DEVNULL) as process:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=1)
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
        process.terminate()


@pytest.fixture(scope="module")
def blobs(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the registry keeps what was pushed."""
    return next(tmp_path_factory.getbasetemp().glob("registry*")) / "docker/registry/v2/blobs/sha256"


def push(client: Any, reference: str, content: bytes) -> str:
    """Push an image of one file, and remove it here; returns its id."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("content")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    client.api.import_image_from_data(buffer.getvalue(), *reference.rsplit(":", 1))
    identity = str(client.images.get(reference).id)
    assert "error" not in client.images.push(reference)
    client.images.remove(reference)
    return identity


@pytest.fixture
def image(registry: str, tmp_path: Path) -> Image:
    shutil.copytree(IMAGES / "torch-2.13.0-cpu", tmp_path / "torch-2.13.0-cpu")
    toml = tmp_path / "torch-2.13.0-cpu" / "image.toml"
    toml.write_text(toml.read_text().replace("python:3.11-slim-bookworm", f"{registry}/python:3.11"))
    return load_catalog(tmp_path, ("torch", "keras_torch"))["torch-2.13.0-cpu"]


def test_a_base_is_pinned_by_the_registry_and_pulled_by_its_digest_when_the_tag_has_moved(
    client: Any, registry: str, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(recipes.BASE_IMAGE_VARIABLE, raising=False)
    first = push(client, image.base, b"first")
    digest = lock.pin_base(image, client)
    pinned = load_catalog(tmp_path, ("torch", "keras_torch"))[image.name]
    assert pinned.base_digest == digest
    assert pinned.model_copy(update={"base_digest": None}) == image  # nothing else in the file changed
    assert "not resolved" not in (image.folder / "image.toml").read_text()

    second = push(client, image.base, b"second")
    wanted = recipes.recipe(pinned)
    assert wanted.base == f"{image.base}@{digest}"
    try:
        with open(tmp_path / "log", "w") as log:
            assert build._base_id(client, wanted, build._Log(log, tmp_path / "log", print)) == first != second
        assert lock.pin_base(pinned, client) != digest
    finally:
        client.images.remove(first, force=True)


def test_a_registry_that_does_not_know_the_base_is_named(client: Any, image: Image) -> None:
    unknown = image.model_copy(update={"base": image.base.replace("/python", "/unknown")})
    with pytest.raises(lock.LockError, match=r"the registry of .*/unknown:3.11 does not tell its digest"):
        lock.pin_base(unknown, client)
    assert load_catalog(image.folder.parent, ("torch", "keras_torch"))[image.name].base_digest is None


# -- built images ------------------------------------------------------------------------------------------------------

FRAMEWORKS = ("torch", "keras_torch")


@pytest.fixture
def small(
    client: Any, registry: str, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Image]:
    """An image of one small package on a base in the registry, in a copy of the project; what is made of it is removed."""
    monkeypatch.delenv(recipes.BASE_IMAGE_VARIABLE, raising=False)
    project = tmp_path / "project"
    folder = project / "images" / "small-cpu"
    shutil.copytree(IMAGES / "torch-2.13.0-cpu", folder)
    shutil.copytree(PROJECT / "bench", project / "bench", ignore=shutil.ignore_patterns("__pycache__", "*.npz"))
    for name in ("Dockerfile.base", "images/Dockerfile"):
        shutil.copy(PROJECT / name, project / name)
    for module in (build, recipes):
        monkeypatch.setattr(module, "PROJECT", project)
    pins = (folder / "requirements.lock").read_text().split("typing-extensions==", 1)[1]
    (folder / "requirements.lock").write_text("typing-extensions==" + pins)
    toml = folder / "image.toml"
    text = toml.read_text().split("[debian]")[0]
    toml.write_text(text.replace("python:3.11-slim-bookworm", f"{registry}/site:3.11"))
    client.images.get(base_image).tag(f"{registry}/site", "3.11")
    assert "error" not in client.images.push(f"{registry}/site", tag="3.11")
    image = load_catalog(folder.parent, FRAMEWORKS)["small-cpu"]
    lock.pin_base(image, client)
    yield reload(image)
    for image_id, _ in every(client):
        shelf.remove(client, image_id)
    for base in client.images.list(filters={"reference": f"{registry}/*"}):
        for name in (*base.tags, *(base.attrs["RepoDigests"] or ())):
            if name.startswith(registry):
                with contextlib.suppress(ImageNotFound):  # the last tag takes its digests along
                    client.images.remove(name)


def reload(image: Image) -> Image:
    return load_catalog(image.folder.parent, FRAMEWORKS)[image.name]


def every(client: Any) -> list[tuple[str, dict[str, str]]]:
    found = client.images.list(filters={"label": "dlbench.image=small-cpu"})
    return [(str(image.id), image.labels) for image in found]


def forget(client: Any) -> None:
    for image_id, _ in every(client):
        assert shelf.remove(client, image_id) is None
    assert every(client) == []


def test_an_image_goes_to_the_registry_and_comes_back_by_its_digest(client: Any, registry: str, small: Image) -> None:
    built = build.build(small, client=client)
    wanted = recipes.recipe(small)
    assert wanted.base == f"{registry}/site:3.11@{small.base_digest}"
    pushed = shelf.push(client, wanted, registry)
    assert shelf.digest_of(client, wanted, registry) == pushed
    lock.pin_published(small, pushed)
    pinned = reload(small)
    assert pinned.published == pushed
    assert pinned.model_copy(update={"published": None}) == small  # nothing else in the file changed

    forget(client)
    engine, said = DockerEngine(), list[str]()
    assert engine.unfit(pinned) is None
    prepared = engine.prepare(pinned, said.append)
    assert said == [f"pulling {pushed}"]
    assert prepared.digest == pushed  # what a result names the image by is what was pushed
    assert client.images.get(pushed).id == built
    # bench is there, and what the lock holds
    assert (
        client.containers.run(pushed, ["-c", "import bench, typing_extensions"], entrypoint="python", remove=True)
        == b""
    )


def test_an_image_of_another_bench_is_not_taken_from_the_registry_but_serves_as_the_cache(
    client: Any, registry: str, small: Image
) -> None:
    build.build(small, client=client)
    pushed = shelf.push(client, recipes.recipe(small), registry)
    lock.pin_published(small, pushed)
    layers = client.images.get(pushed).attrs["RootFS"]["Layers"]
    forget(client)
    (build.PROJECT / "bench" / "errors.py").write_text("# changed\n")
    said: list[str] = []
    again = build.build(reload(small), client=client, say=said.append, cache_from=registry)
    assert f"{pushed} was made from another bench_sha256; building it" in said
    assert client.images.get(again).attrs["RootFS"]["Layers"][:-2] == layers[:-2]
    # the one that was pulled is stale now, and only that
    stale = dict(shelf.stale(client, [recipes.recipe(reload(small))]))
    assert stale == {
        image_id: "small-cpu of another bench_sha256" for image_id, _ in every(client) if image_id != again
    }
    assert stale


def test_a_layer_that_was_tampered_with_in_the_registry_is_refused(
    client: Any, registry: str, blobs: Path, small: Image, tmp_path: Path
) -> None:
    build.build(small, client=client)
    pushed = shelf.push(client, recipes.recipe(small), registry)
    lock.pin_published(small, pushed)
    forget(client)
    kind = {"Accept": "application/vnd.docker.distribution.manifest.v2+json"}
    address = f"http://{registry}/v2/small-cpu/manifests/{pushed.partition('@')[2]}"
    with urllib.request.urlopen(urllib.request.Request(address, headers=kind)) as answer:
        layer = json.load(answer)["layers"][-1]["digest"].removeprefix("sha256:")
    blob = blobs / layer[:2] / layer / "data"
    content = bytearray(blob.read_bytes())
    content[len(content) // 2] ^= 1
    blob.write_bytes(bytes(content))
    said: list[str] = []
    assert shelf.pull(client, recipes.recipe(reload(small)), said.append) is None
    assert any("cannot be had from its registry" in line for line in said), said
    assert every(client) == []


def test_a_tampered_lock_is_another_image_and_its_build_is_refused(
    client: Any, registry: str, small: Image, tmp_path: Path
) -> None:
    build.build(small, client=client)
    lock.pin_published(small, shelf.push(client, recipes.recipe(small), registry))
    lock.write_seal(small)
    text = small.lock_path.read_text()
    small.lock_path.write_text(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, text))
    said: list[str] = []
    with pytest.raises(build.BuildError, match="DO NOT MATCH THE HASHES"):
        build.build(reload(small), client=client, say=said.append, logs=tmp_path / "logs")
    assert any("was made from another lock_sha256" in line for line in said), said


def test_a_registry_without_the_image_is_told_with_what_puts_it_there(client: Any, registry: str, small: Image) -> None:
    with pytest.raises(shelf.RegistryError, match=f"`runner images build small-cpu --push {registry}/nothing`"):
        shelf.digest_of(client, recipes.recipe(small), f"{registry}/nothing")


def test_a_base_without_python_gets_its_distribution_s(
    client: Any, base_image: str, small: Image, tmp_path: Path
) -> None:
    shutil.copy(IMAGES / "Dockerfile.cuda", build.PROJECT / "images" / "Dockerfile.cuda")
    wanted = recipes.Recipe(small.model_copy(update={"cuda_from": "base", "python": "3.6"}), base_image, "", "")
    with open(tmp_path / "log", "w") as log, pytest.raises(build.BuildError, match="the image is locked for 3.6"):
        build._build_common(client, wanted, build._Log(log, tmp_path / "log", print), None)
