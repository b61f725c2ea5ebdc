"""A real registry: digests of base images and of built ones are asked for and written down, and images come back by them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import tarfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound
from typer.testing import CliRunner

from runner.catalog.images import IMAGES, PROJECT, Image, load_catalog, read_bases
from runner.cli.images import push as commands
from runner.cli.main import app
from runner.engines.base import Settings
from runner.engines.docker.engine import DockerEngine
from runner.images import builder, locking
from runner.images import recipe as recipes
from runner.images.docker_client import registry_digest
from runner.images.transfer import folder
from runner.images.transfer import registry as shelf
from tests.fixtures.registry import serve

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def registry(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry of its own on this machine, which Docker takes without encryption."""
    with serve(tmp_path_factory.mktemp("registry")) as host:
        yield host


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
    digest = locking.pin_base(image, client)
    pinned = load_catalog(tmp_path, ("torch", "keras_torch"))[image.name]
    assert pinned.base_digest == digest
    assert pinned.model_copy(update={"base_digest": None}) == image  # nothing else in the file changed
    assert read_bases(tmp_path) == {image.base: digest}

    second = push(client, image.base, b"second")
    wanted = recipes.recipe(pinned)
    assert wanted.base == f"{image.base}@{digest}"
    try:
        with open(tmp_path / "log", "w") as log:
            assert builder._base_id(client, wanted, builder._Log(log, tmp_path / "log", print)) == first != second
        assert locking.pin_base(pinned, client) != digest
    finally:
        client.images.remove(first, force=True)


def test_a_registry_that_does_not_know_the_base_is_named(client: Any, image: Image) -> None:
    unknown = image.model_copy(update={"base": image.base.replace("/python", "/unknown")})
    with pytest.raises(
        locking.LockError, match=r"/unknown:3.11 does not tell its digest: the registry does not have it"
    ):
        locking.pin_base(unknown, client)
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
    for name in ("Dockerfile.base", "images/Dockerfile", "images/links.sh"):
        shutil.copy(PROJECT / name, project / name)
    for module in (builder, recipes):
        monkeypatch.setattr(module, "PROJECT", project)
    pins = (folder / "requirements.lock").read_text().split("typing-extensions==", 1)[1]
    (folder / "requirements.lock").write_text("typing-extensions==" + pins)
    toml = folder / "image.toml"
    text = toml.read_text().split("[debian]")[0]
    toml.write_text(text.replace("python:3.11-slim-bookworm", f"{registry}/site:3.11"))
    client.images.get(base_image).tag(f"{registry}/site", "3.11")
    assert "error" not in client.images.push(f"{registry}/site", tag="3.11")
    image = load_catalog(folder.parent, FRAMEWORKS)["small-cpu"]
    locking.pin_base(image, client)
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


def unnamed_steps(client: Any, image_id: str) -> Iterator[str]:
    """The steps of an image's build that nothing else is named by, the last first."""
    step = client.api.inspect_image(image_id)["Parent"]
    while step and not (attributes := client.api.inspect_image(step))["RepoTags"]:
        yield step
        step = attributes["Parent"]


def remove_step(client: Any, step: str) -> None:
    """Remove a step of a build unless another build stands on it. The engine refuses while a container of it is still going."""
    for _ in range(100):
        try:
            client.images.remove(step)
        except ImageNotFound:
            return
        except APIError as error:
            if "child" in str(error):
                return
            time.sleep(0.1)
    raise AssertionError(f"a container holds {step}")


def forget(client: Any) -> None:
    """Remove the image with every step of its build: a layer that a step keeps here is not asked of the registry again.

    The engine removes the steps with their image, and keeps one, without a word, while a container of it is still going.
    """
    images = [image_id for image_id, _ in every(client)]
    steps = [step for image_id in images for step in unnamed_steps(client, image_id)]
    for image_id in images:
        assert shelf.remove(client, image_id) is None
    for step in steps:
        remove_step(client, step)
    assert every(client) == []


def test_an_image_goes_to_a_folder_and_comes_back_without_a_registry(
    client: Any, small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "chosen", lambda names: [small])
    export, exported = ["images", "export", "small-cpu", "--to", str(tmp_path / "exported")], tmp_path / "exported"
    ended = CliRunner().invoke(app, export)
    assert (ended.exit_code, ended.stderr) == (
        2,
        "runner: not built, or stale: small-cpu; `runner images build small-cpu` makes them\n",
    )
    assert not exported.exists()
    built = builder.build(small, client=client)
    wanted = recipes.recipe(small)
    first, again = (CliRunner().invoke(app, export).stdout for _ in range(2))
    entry = folder.find(exported, wanted)
    assert entry is not None
    assert first == f"small-cpu {exported / entry.sha256}.tar {entry.bytes / 1e9:.2f} GB\n"
    assert again == first.replace(" GB\n", " GB (was there)\n")
    assert sorted(path.name for path in exported.iterdir()) == sorted(
        [f"{entry.sha256}.tar", f"small-cpu@{wanted.input_tag}.json"]
    )
    forget(client)
    engine, said = DockerEngine(Settings(images_from=exported, may_build=False)), list[str]()
    assert engine.parts(small) == engine.disk_parts(small) == {wanted.tag: entry.bytes}
    assert engine.unobtainable(small) is None
    assert "is not here" in str(DockerEngine(Settings(may_build=False)).unobtainable(small))
    prepared = engine.prepare(small, said.append)
    assert said == [f"loading small-cpu from {exported}: {entry.bytes / 1e9:.2f} GB"]
    assert prepared.digest == built
    container = client.containers.run(built, entrypoint=["python", "-c"], command=["import bench"], remove=True)
    assert container == b""

    forget(client)
    path = exported / f"{entry.sha256}.tar"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    said.clear()
    with pytest.raises(
        builder.BuildError, match=r"small-cpu is not here, and nodes build no images unless --build is given"
    ):
        engine.prepare(small, said.append)
    assert f"{path} is damaged: its sha256 is not its name" in said[-1]
    assert every(client) == []  # nothing of it was loaded
    # On one machine it is built then.
    assert DockerEngine(Settings(images_from=exported)).prepare(small, said.append).digest == built


def test_an_image_goes_to_the_registry_and_comes_back_by_its_digest(client: Any, registry: str, small: Image) -> None:
    built = builder.build(small, client=client)
    wanted = recipes.recipe(small)
    assert wanted.base == f"{registry}/site:3.11@{small.base_digest}"
    assert shelf.missing(client, [wanted], registry) == [wanted]
    pushed = shelf.push(client, wanted, registry)
    assert shelf.missing(client, [wanted], registry) == []
    assert shelf.digest_of(client, wanted, registry) == pushed
    reference = f"{registry}/small-cpu@{pushed.partition('@')[2]}"
    locking.pin_published(small, pushed)
    pinned = reload(small)
    assert pinned.published == pushed
    assert pinned.model_copy(update={"published": None}) == small  # nothing else in the file changed

    forget(client)
    engine, said = DockerEngine(), list[str]()
    assert engine.unfit(pinned) is None
    prepared = engine.prepare(pinned, said.append)
    assert said == [f"pulling {reference}"]
    assert prepared.digest == reference  # what a result names the image by is what was pushed
    assert client.images.get(reference).id == built
    # bench is there, and what the lock holds
    assert (
        client.containers.run(reference, ["-c", "import bench, typing_extensions"], entrypoint="python", remove=True)
        == b""
    )


def test_a_pin_of_another_bench_is_not_pulled_to_be_used_but_its_layers_are_the_cache(
    client: Any, registry: str, small: Image, tmp_path: Path
) -> None:
    built = builder.build(small, client=client)
    pushed = shelf.push(client, recipes.recipe(small), registry)
    locking.pin_published(small, pushed)
    layers = client.images.get(built).attrs["RootFS"]["Layers"]
    forget(client)
    (builder.PROJECT / "bench" / "errors.py").write_text("# changed\n")
    said: list[str] = []
    again = builder.build(reload(small), client=client, say=said.append, logs=tmp_path / "logs")
    # The layers are the same bytes also where they are made again, so the log says whether they were.
    assert "Successfully installed" not in (tmp_path / "logs" / "small-cpu.log").read_text()
    tagged = pushed.partition("@")[0]
    assert said[0] == f"{tagged} was built from other inputs, and only the bench differs; building small-cpu"
    assert client.images.get(again).attrs["RootFS"]["Layers"][:-1] == layers[:-1]
    # the one that was pulled is stale now, and only that: the new one and what its steps made are of this bench
    wanted = recipes.recipe(reload(small))
    stale = dict(shelf.stale(client, {small.name: lambda: wanted}))
    older = [image_id for image_id, labels in every(client) if labels["dlbench.bench_sha256"] != wanted.bench_sha256]
    assert stale == dict.fromkeys(older, "small-cpu, built from another bench")
    assert stale
    assert again not in stale


def test_prune_names_what_the_catalog_lost_and_leaves_what_another_checkout_built(
    client: Any, small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "cache_folder", lambda: tmp_path / "cache")
    other = tmp_path / "other"
    other.mkdir()
    built = builder.build(small, client=client)
    lost = {
        image_id for image_id, what in shelf.unknown(client, []) if what == "small-cpu, which the catalog does not have"
    }
    assert built in lost
    assert lost == {image_id for image_id, _ in every(client)}  # with the steps that the builder's cache needs
    assert not [image_id for image_id, _ in shelf.unknown(client, [small]) if image_id in lost]
    (builder.PROJECT / "bench" / "errors.py").write_text("# changed\n")
    changed = {small.name: lambda: recipes.recipe(small)}
    assert {image_id for image_id, _ in shelf.stale(client, changed)} == lost
    # The other checkout has the image of the older bench, and needs its steps too.
    note = next((tmp_path / "cache" / "checkouts").glob("*/small-cpu"))
    note.write_text(note.read_text().replace(str(PROJECT), str(other)))
    assert not list(shelf.stale(client, changed))
    assert not [image_id for image_id, _ in shelf.unknown(client, []) if image_id in lost]
    other.rmdir()
    assert {image_id for image_id, _ in shelf.stale(client, changed)} == lost


def test_prune_leaves_every_image_that_a_user_named(client: Any, small: Image) -> None:
    built = client.images.get(builder.build(small, client=client))
    built.tag("user.example/app", "1")
    built.tag("dlbench/small-cpu", "mine")
    made = client.api.create_container(built.id, "true")["Id"]
    try:
        application = str(client.containers.get(made).commit("user.example/on-top", "1").id)
    finally:
        client.containers.get(made).remove()
    try:
        # It has the labels of the image below it.
        assert client.images.get(application).labels["dlbench.image"] == "small-cpu"
        left = dict(shelf.unknown(client, []))
        assert application not in left
        assert "stays as " in left[built.id]
        for image_id, what in left.items():
            if what.startswith("small-cpu,"):
                assert shelf.remove(client, image_id) is None
        assert client.images.get(application).tags == ["user.example/on-top:1"]
        assert set(client.images.get(built.id).tags) == {"user.example/app:1", "dlbench/small-cpu:mine"}
        assert not [name for name in shelf.unknown(client, []) if name[0] in (built.id, application)]
    finally:
        for name in ("user.example/on-top:1", "user.example/app:1", "dlbench/small-cpu:mine"):
            client.images.remove(name)


def test_prune_removes_the_names_of_the_registry_that_pushes_and_pulls_gave(
    client: Any, registry: str, small: Image
) -> None:
    def named() -> list[str]:
        tags = (name for image in client.images.list(name=f"{registry}/*") for name in image.tags)
        return sorted(name for name in tags if name.startswith(f"{registry}/"))

    older = recipes.recipe(small)
    built = builder.build(small, client=client)
    shelf.push(client, older, registry)
    base = f"{registry}/{older.base_tag.partition('/')[2]}"
    names = [base, f"{registry}/small-cpu:{older.input_tag}", f"{registry}/small-cpu:latest"]
    assert named() == sorted([*names, f"{registry}/site:3.11"])
    # They are of the image and the common layers that are in use, so they stay.
    changed = {small.name: lambda: recipes.recipe(small)}
    assert built not in dict(shelf.stale(client, changed))
    assert named() == sorted([*names, f"{registry}/site:3.11"])

    for path in (builder.PROJECT / "bench" / "errors.py", builder.PROJECT / "Dockerfile.base"):
        with path.open("a") as file:
            file.write(f"# {uuid.uuid4()}\n")
    newer = builder.build(small, client=client, cache_from=registry)
    # What was pulled to be the cache has the name of the registry again.
    for image_id, _ in [*shelf.stale(client, changed), *shelf.unknown(client, [small])]:
        if {*client.images.get(image_id).tags} & {*names, older.base_tag, older.tag}:
            shelf.remove(client, image_id)
    assert named() == [f"{registry}/site:3.11"]
    assert client.images.get(newer).tags == [recipes.recipe(small).tag, f"dlbench/{small.name}:latest"]


def test_a_pin_of_another_lock_costs_no_download(
    client: Any, registry: str, small: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.build(small, client=client)
    pushed = shelf.push(client, recipes.recipe(small), registry)
    locking.pin_published(small, pushed)
    forget(client)
    monkeypatch.setattr(shelf.docker_client, "pull_image", None)  # a pull would be an error
    with open(small.lock_path, "a") as file:
        file.write("# another lock\n")
    said: list[str] = []
    builder.build(reload(small), client=client, say=said.append)
    assert said[0] == f"{pushed.partition('@')[0]} was built from other inputs; building small-cpu"


def test_a_registry_that_gives_another_layer_configuration_or_manifest_than_the_digest_says_is_refused(
    client: Any, registry: str, blobs: Path, small: Image, tmp_path: Path
) -> None:
    # No other build has this bench, so that none keeps its layer here.
    (builder.PROJECT / "bench" / "errors.py").write_text(f"# {uuid.uuid4()}\n")
    builder.build(small, client=client)
    pushed = shelf.push(client, recipes.recipe(small), registry)
    locking.pin_published(small, pushed)
    forget(client)

    def blob(digest: str) -> Path:
        sha256 = digest.removeprefix("sha256:")
        return blobs / sha256[:2] / sha256 / "data"

    own = pushed.partition("@")[2]
    manifest = json.loads(blob(own).read_bytes())
    assert small.base_digest is not None
    base = json.loads(blob(small.base_digest).read_bytes())
    for digest, other in (
        # First, since an engine keeps a manifest that it has taken.
        (own, small.base_digest),
        (manifest["config"]["digest"], base["config"]["digest"]),
        (manifest["layers"][-1]["digest"], base["layers"][-1]["digest"]),
    ):
        kept = blob(digest).read_bytes()
        blob(digest).write_bytes(blob(other).read_bytes())
        said: list[str] = []
        assert shelf.pull(client, recipes.recipe(reload(small)), said.append) is None
        refused = "small-cpu was not pulled: the registry gave other content than the digest says"
        assert any(refused in line for line in said), said
        assert every(client) == []
        blob(digest).write_bytes(kept)


def test_a_tampered_lock_is_another_image_and_its_build_is_refused(
    client: Any, registry: str, small: Image, tmp_path: Path
) -> None:
    builder.build(small, client=client)
    locking.pin_published(small, shelf.push(client, recipes.recipe(small), registry))
    locking.write_seal(small)
    text = small.lock_path.read_text()
    small.lock_path.write_text(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, text))
    said: list[str] = []
    with pytest.raises(builder.BuildError, match="DO NOT MATCH THE HASHES"):
        builder.build(reload(small), client=client, say=said.append, logs=tmp_path / "logs")
    assert any("was built from other inputs; building small-cpu" in line for line in said), said


def test_a_registry_without_the_image_is_told_with_what_puts_it_there(client: Any, registry: str, small: Image) -> None:
    remedy = f"the registry does not have it .*`runner images build small-cpu --push {registry}/nothing`"
    with pytest.raises(shelf.RegistryError, match=remedy):
        shelf.digest_of(client, recipes.recipe(small), f"{registry}/nothing")


def test_a_base_without_python_gets_its_distribution_s(
    client: Any, base_image: str, small: Image, tmp_path: Path
) -> None:
    shutil.copy(IMAGES / "Dockerfile.cuda", builder.PROJECT / "images" / "Dockerfile.cuda")
    wanted = recipes.Recipe(small.model_copy(update={"cuda_from": "base", "python": "3.6"}), base_image, "", "")
    with open(tmp_path / "log", "w") as log, pytest.raises(builder.BuildError, match="the image is locked for 3.6"):
        builder._build_common(client, wanted, builder._Log(log, tmp_path / "log", print), None, "", {})


def test_an_index_has_one_digest_under_each_of_its_names(client: Any, registry: str) -> None:
    """The digest that is signed is that of the tag which the image gets afterwards."""
    both = []
    for content in (b"one machine's", b"another machine's"):
        push(client, f"{registry}/pair:part", content)
        both.append(f"{registry}/pair@{registry_digest(client, f'{registry}/pair:part')}")
    digest = shelf._push_index(f"{registry}/pair:latest", both)
    assert digest == registry_digest(client, f"{registry}/pair:latest")
    assert shelf._push_index(f"{registry}/pair:inputs", both) == digest
    with pytest.raises(shelf.RegistryError, match="the index could not be pushed"):
        shelf._push_index(f"{registry}/pair:latest", [f"{registry}/pair@sha256:{'0' * 64}"])
