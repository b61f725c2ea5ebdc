"""Base images from a real registry: the digest of a tag is asked for and written down, and a build pulls by it."""

from __future__ import annotations

import io
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

from runner import build, lock
from runner.catalog import IMAGES, Image, load_catalog

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
    monkeypatch.delenv(build.BASE_IMAGE_VARIABLE, raising=False)
    first = push(client, image.base, b"first")
    digest = lock.pin_base(image, client)
    pinned = load_catalog(tmp_path, ("torch", "keras_torch"))[image.name]
    assert pinned.base_digest == digest
    assert pinned.model_copy(update={"base_digest": None}) == image  # nothing else in the file changed
    assert "not resolved" not in (image.folder / "image.toml").read_text()

    second = push(client, image.base, b"second")
    wanted = build.recipe(pinned)
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
