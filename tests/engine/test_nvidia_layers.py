"""Images share the layers of NVIDIA's wheels that their locks agree on: in an engine, in a registry, and on any day."""

from __future__ import annotations

import hashlib
import json
import shutil
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import Image
from runner.images import builder
from runner.images import recipe as recipes
from runner.images.transfer import registry as shelf
from tests.fixtures.registry import serve
from tests.fixtures.weekly import only_with
from tests.stand_ins import package_index
from tests.stand_ins.package_index import Release

from .test_build import project, scratch

__all__ = ["project", "scratch"]

pytestmark = [pytest.mark.engine, pytest.mark.slow]

# A step that an earlier session left to the builder's cache is of other wheels.
OF_THIS_SESSION = uuid.uuid4().hex[:8]

Make = Callable[..., Image]


def of_nvidia(name: str, version: str) -> Release:
    """A wheel with the files that NVIDIA's have: a library, and a package that all of its older wheels hold."""
    folder = name.removeprefix("nvidia-").removesuffix("-cu12")
    library = f"nvidia/{folder}/lib/lib{folder}-{OF_THIS_SESSION}.so"
    return Release(name, version, holds=("nvidia/__init__.py", f"nvidia/{folder}/__init__.py", library))


CUBLAS, CUDNN = of_nvidia("nvidia-cublas-cu12", "12.8.4.1"), of_nvidia("nvidia-cudnn-cu12", "9.10.2.21")
NCCL, OTHER_NCCL = of_nvidia("nvidia-nccl-cu12", "2.27.5"), of_nvidia("nvidia-nccl-cu12", "2.27.7")
OWN, OTHER = Release("first-framework", "1.0"), Release("second-framework", "2.0")
FIRST, SECOND = (CUBLAS, CUDNN, NCCL, OWN), (CUBLAS, CUDNN, OTHER_NCCL, OTHER)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The wheels that builds fetch from an index, which has no others."""
    files: list[str] = []
    monkeypatch.setenv(builder.BUILD_NETWORK_VARIABLE, "host")
    with package_index.serve([CUBLAS, CUDNN, NCCL, OTHER_NCCL, OWN, OTHER], files) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
        monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.1")
        yield files


@pytest.fixture
def locked(scratch: Image, project: Path, client: Any, fetched: list[str]) -> Iterator[Make]:
    """Make an image whose lock holds these wheels. What its builds leave is removed."""
    made: list[Image] = []

    def make(name: str, *releases: Release) -> Image:
        folder = project / "images" / name
        if folder != scratch.folder:
            shutil.copytree(scratch.folder, folder)
        hashes = {release: hashlib.sha256(release.content).hexdigest() for release in releases}
        lines = [f"{release.name}=={release.version} \\\n    --hash=sha256:{hashes[release]}\n" for release in releases]
        (folder / "requirements.lock").write_text("".join(lines))
        made.append(scratch.model_copy(update={"name": name, "folder": folder, "debian": {}}))
        return made[-1]

    yield make
    forget(client, *made)


def forget(client: Any, *images: Image) -> None:
    """Remove the images with the layers of NVIDIA's wheels below them, by whichever name."""
    names = {image.name for image in images}
    built = [
        one for one in client.images.list(filters={"label": "dlbench.image"}) if one.labels["dlbench.image"] in names
    ]
    digests = {layer.digest for image in images for layer in recipes.shared_layers(image)}
    of_wheels = client.images.list(filters={"label": "dlbench.nvidia"})
    for one in (*built, *(one for one in of_wheels if one.labels["dlbench.nvidia"] in digests)):
        for name in (*one.tags, *(one.attrs["RepoDigests"] or ())):
            with_name = client.images.list(name=name.partition("@")[0])
            if any(str(other.id) == str(one.id) for other in with_name):
                client.images.remove(name, force=True)


def layers(client: Any, name: str) -> list[str]:
    return list(client.images.get(name).attrs["RootFS"]["Layers"])


def installed(client: Any, image_id: str) -> dict[str, str]:
    """The packages of an image, without those that every image has."""
    script = "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    printed = client.containers.run(image_id, ["-c", script], entrypoint="python", remove=True)
    found: dict[str, str] = json.loads(printed)
    return {name: version for name, version in found.items() if name not in ("pip", "setuptools")}


def test_images_share_the_layers_that_their_locks_agree_on_and_each_wheel_is_fetched_once(
    client: Any, base_image: str, locked: Make, fetched: list[str]
) -> None:
    first, second = locked("scratch", *FIRST), locked("scratch-jax", *SECOND)
    built = [builder.build(image, client=client) for image in (first, second)]
    one, other = (layers(client, image_id) for image_id in built)
    common = len(layers(client, recipes.recipe(first).base_tag))
    # cuBLAS and cuDNN lie on the common layers. NCCL is another one.
    assert one[: common + 2] == other[: common + 2]
    assert len({one[common + 2], other[common + 2]}) == 2
    assert len({*one[common : common + 3]}) == 3
    assert sorted(fetched) == sorted(release.file for release in {*FIRST, *SECOND})
    for image_id, releases in zip(built, (FIRST, SECOND), strict=True):
        assert installed(client, image_id) == {release.name: release.version for release in releases}
        image = client.images.get(image_id)
        # The names and hashes of the wheels are in the history, and where they came from is not.
        history = json.dumps(image.history())
        assert all(f"{release.name}=={release.version}" in history for release in releases[:3])
        assert "PIP_" not in json.dumps(image.attrs) + history
    # Nothing is built again.
    fetched.clear()
    assert [builder.build(image, client=client, say=pytest.fail) for image in (first, second)] == built
    assert fetched == []


@only_with("DLBENCH_CURVES", "two images that share a layer are built")
def test_a_layer_has_the_same_digest_on_other_layers_of_wheels(client: Any, base_image: str, locked: Make) -> None:
    first, second = locked("scratch", *FIRST), locked("scratch-jax", CUDNN, OTHER)
    one, other = (layers(client, builder.build(image, client=client)) for image in (first, second))
    common = len(layers(client, recipes.recipe(first).base_tag))
    assert recipes.recipe(first).nvidia_tags[1] != recipes.recipe(second).nvidia_tags[0]
    assert one[common + 1] == other[common]


@only_with("DLBENCH_CURVES", "two images that share a layer are built")
def test_a_layer_is_the_same_image_whichever_index_its_wheels_came_from(
    client: Any, base_image: str, locked: Make, fetched: list[str]
) -> None:
    image = locked("scratch", CUBLAS, OWN)
    builder.build(image, client=client)
    (tag,) = recipes.recipe(image).nvidia_tags
    first = client.images.get(tag).id
    forget(client, image)
    fetched.clear()
    builder.build(image.model_copy(update={"extra_index": "http://127.0.0.1:9/simple"}), client=client)
    assert client.images.get(tag).id == first
    assert CUBLAS.file in fetched


def test_a_wheel_with_another_hash_than_the_lock_says_is_refused(
    client: Any, base_image: str, locked: Make, tmp_path: Path
) -> None:
    image = locked("scratch", *FIRST)
    good, bad = hashlib.sha256(CUDNN.content).hexdigest(), "0" * 64
    image.lock_path.write_text(image.lock_path.read_text().replace(good, bad))
    with pytest.raises(builder.BuildError, match="DO NOT MATCH THE HASHES"):
        builder.build(image, client=client, logs=tmp_path / "logs")
    tags = recipes.recipe(image).nvidia_tags
    assert [bool(client.images.list(name=tag)) for tag in tags] == [True, False, False]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "registry").mkdir()
    with serve(tmp_path / "registry") as host:
        yield host


def stored(registry: str, image: Image) -> list[str]:
    """The digests of an image's layers, as the registry has them."""
    kind = {"Accept": "application/vnd.docker.distribution.manifest.v2+json"}
    address = f"http://{registry}/v2/{image.name}/manifests/latest"
    with urllib.request.urlopen(urllib.request.Request(address, headers=kind)) as answer:
        return [layer["digest"] for layer in json.load(answer)["layers"]]


@only_with("DLBENCH_CURVES", "an image goes to a registry in another test")
def test_a_shared_layer_goes_to_a_registry_once_and_serves_the_build_of_another_image_from_there(
    client: Any,
    base_image: str,
    locked: Make,
    registry: str,
    fetched: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = locked("scratch", *FIRST), locked("scratch-jax", *SECOND)
    uploaded: list[str] = []
    watch = shelf.docker_client.watch

    def counting(*arguments: Any) -> Iterator[Any]:
        for message in watch(*arguments):
            if message.get("status") == "Pushed":
                uploaded.append(message["id"])
            yield message

    monkeypatch.setattr(shelf.docker_client, "watch", counting)
    for image in (first, second):
        builder.build(image, client=client)
        shelf.push(client, recipes.recipe(image), registry)
    below = layers(client, recipes.recipe(first).nvidia_tags[1])
    # An engine calls a layer by 12 digits of its digest. The last two are the wheels that both images have.
    assert [uploaded.count(layer.removeprefix("sha256:")[:12]) for layer in below[-2:]] == [1, 1]
    assert len(set(uploaded)) == len(uploaded)
    assert stored(registry, first)[: len(below)] == stored(registry, second)[: len(below)]

    # Another machine builds the second image: NVIDIA's wheels come from the registry, also those that the first image brought there, by
    # the digests that were pinned.
    monkeypatch.setattr(shelf, "LAYERS", tmp_path / "layers.toml")
    shelf.pin_layers(client, [recipes.recipe(image) for image in (first, second)], registry)
    forget(client, first, second)
    fetched.clear()
    said: list[str] = []
    builder.build(second, client=client, say=said.append, cache_from=registry)
    assert not {release.file for release in SECOND[:3]} & set(fetched)
    assert not [line for line in said if "in a layer for all images" in line], said
    assert layers(client, recipes.recipe(second).tag)[: len(below)] == below


def test_prune_removes_the_layers_of_wheels_that_no_image_of_the_catalog_has(
    client: Any, base_image: str, locked: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "cache_folder", lambda: tmp_path / "cache")
    first, second = locked("scratch", *FIRST), locked("scratch-jax", *SECOND)
    for image in (first, second):
        builder.build(image, client=client)
    ids = {
        tag: str(client.images.get(tag).id) for image in (first, second) for tag in recipes.recipe(image).nvidia_tags
    }

    def pruned(*catalog: Image) -> set[str]:
        found = dict(shelf.unknown(client, catalog))
        return {tag for tag, image_id in ids.items() if "NVIDIA's wheels" in found.get(image_id, "")}

    assert len(ids) == 4
    assert pruned(first, second) == set()
    assert pruned(first) == {recipes.recipe(second).nvidia_tags[2]}
    assert pruned() == set(ids)
    # Another checkout on this machine built the first image last.
    note = next((tmp_path / "cache" / "checkouts").glob("*/scratch"))
    note.write_text("\n".join([str(tmp_path), *note.read_text().splitlines()[1:]]))
    assert pruned() == {recipes.recipe(second).nvidia_tags[2]}
    note.unlink()
    for image_id, _ in list(shelf.unknown(client, [])):
        if image_id in ids.values() or client.images.get(image_id).labels.get("dlbench.image", "").startswith(
            "scratch"
        ):
            shelf.remove(client, image_id)
    assert not [tag for tag in ids if client.images.list(name=tag)]
