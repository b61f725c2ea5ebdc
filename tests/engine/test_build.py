"""Building images with a real Docker Engine: what is built, what is not built again, and what a failure tells."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import PROJECT, Image
from runner.engines import trial
from runner.engines.base import Launch, Settings, Slot
from runner.engines.docker.engine import DockerEngine
from runner.images import builder
from runner.images import recipe as recipes
from runner.images.docker_client import list_images
from tests.fixtures.weekly import only_with
from tests.stand_ins import package_index

from .conftest import CPU_IMAGES

pytestmark = [pytest.mark.engine, pytest.mark.slow]

# Every character that means something else in a Dockerfile.
NOTES = 'For "$HOME", ${HOME} and C:\\n, it\'s ä = 100 % # fine'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Any) -> Iterator[Path]:
    """A copy of what builds depend on, to be changed; the images that come of it are removed."""
    copy = tmp_path / "project"
    for name in ("Dockerfile.base", "images", "bench"):
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(source, copy / name)
    for module in (builder, recipes):
        monkeypatch.setattr(module, "PROJECT", copy)
    yield copy
    for name in ("scratch", "scratch-jax"):
        for image in client.images.list(filters={"label": f"dlbench.image={name}"}):
            client.images.remove(image.id, force=True)


@pytest.fixture
def scratch(project: Path, catalog: dict[str, Image]) -> Image:
    """A small image: PyTorch's entry with one small package in its lock."""
    image = catalog["torch-2.13.0-cpu"]
    folder = project / "images" / "scratch"
    folder.mkdir()
    pins = image.lock_path.read_text().split("typing-extensions==", 1)[1]
    (folder / "requirements.lock").write_text("typing-extensions==" + pins)
    return image.model_copy(update={"name": "scratch", "folder": folder, "extra_index": None, "notes": NOTES})


@pytest.mark.parametrize("name", CPU_IMAGES)
def test_an_image_is_built_and_holds_what_the_catalog_says(
    engine: DockerEngine, base_image: str, catalog: dict[str, Image], tmp_path: Path, name: str
) -> None:
    if name != CPU_IMAGES[0] and os.environ.get("DLBENCH_CURVES") != "all":
        pytest.skip("one image is always built; DLBENCH_CURVES=all builds the others, and the jobs of images build all")
    image = catalog[name]
    prepared = engine.prepare(image, print)
    running = engine.start(Launch(prepared, ["frameworks"], Slot("cpu", (), (), None), "test", tmp_path / "cache"))
    printed = b"".join(running.events())
    ended = running.wait()
    assert ended.code == 0, ended.log_tail
    found = {entry["framework"]: entry for entry in json.loads(printed)}
    assert set(found) == set(image.frameworks)
    # the image is named after its first; a local version like +cpu names the build, not the release
    assert found[image.frameworks[0]]["version"].split("+")[0] == image.framework_version


def test_the_adapter_in_a_built_image_is_held_against_the_reference(
    engine: DockerEngine, base_image: str, catalog: dict[str, Image]
) -> None:
    image = catalog[CPU_IMAGES[0]]
    said: list[str] = []
    prepared = engine.prepare(image, print)
    found = trial.attempt(
        engine, "docker", prepared, [], [("torch", "mlp-mnist", "fp32")], 120, said.append, lambda _: None
    )
    (check,) = found.checks
    assert check.outcome == "ok", check.reason
    assert check.worst is not None
    assert 0 < check.worst <= 1
    assert found.engine == "docker"
    assert set(found.imported) == set(image.frameworks)
    # One that takes too long is ended, with its container.
    (check,) = trial.attempt(
        engine, "docker", prepared, [], [("torch", "gru-imdb", "fp32")], 1, said.append, lambda _: None
    ).checks
    assert (check.outcome, check.reason) == ("unfinished", "it did not end within 1 seconds")


@pytest.mark.alone
@pytest.mark.keyed(False)
def test_a_second_build_takes_seconds_and_costs_nothing(
    engine: DockerEngine, base_image: str, catalog: dict[str, Image]
) -> None:
    image = catalog[CPU_IMAGES[0]]
    first = engine.prepare(image, print)
    begin = time.monotonic()
    second = engine.prepare(image, pytest.fail)  # it has nothing to say
    assert time.monotonic() - begin < 3
    assert second.digest == first.digest
    assert sum(engine.parts(image).values()) == 0


def test_a_built_image_says_what_it_is(
    client: Any, base_image: str, scratch: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(recipes.SOURCE_VARIABLE, "https://git.example/team/project")
    # An image of its own: the address is no input, and one that is there is not built again for it.
    scratch = scratch.model_copy(update={"notes": f"{NOTES} sourced"})
    digest = builder.build(scratch, client=client)
    built = client.images.get(digest)
    wanted = recipes.recipe(scratch)
    assert {wanted.tag, "dlbench/scratch:latest"} <= set(built.tags)
    assert built.labels["dlbench.framework"] == "torch,keras_torch"
    assert built.labels["dlbench.framework_version"] == "2.13.0"
    assert built.labels["dlbench.lock_sha256"] == scratch.lock_sha256
    assert built.labels["dlbench.bench_sha256"] == wanted.bench_sha256
    assert built.labels["dlbench.base"] == base_image
    # The base image may have labels of its own.
    assert wanted.labels(client.images.get(base_image).id).items() <= built.labels.items()
    assert built.labels["org.opencontainers.image.version"] == "2.13.0"
    assert built.labels["org.opencontainers.image.description"] == f"{NOTES} sourced"
    assert built.labels["org.opencontainers.image.source"] == "https://git.example/team/project"
    assert "dlbench.cuda" not in built.labels
    config = built.attrs["Config"]
    assert config["User"] == "bench"
    assert config["Entrypoint"] == ["python", "-m", "bench"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in config["Env"]


def test_a_change_in_the_bench_makes_only_the_last_layers_anew(
    client: Any, base_image: str, scratch: Image, project: Path
) -> None:
    before = client.images.get(builder.build(scratch, client=client)).attrs["RootFS"]["Layers"]
    (project / "bench" / "errors.py").write_text("# changed\n")
    assert builder.built(list_images(client), recipes.recipe(scratch)) is None
    steps: list[str] = []
    after = client.images.get(builder.build(scratch, client=client, say=steps.append)).attrs["RootFS"]["Layers"]
    assert len(before) == len(after)
    assert before[:-1] == after[:-1]
    assert before[-1] != after[-1]  # the bench with its compiled files


def test_an_edit_of_one_adapter_builds_one_image_and_one_question_shows_that_the_others_are_current(
    client: Any, base_image: str, scratch: Image, project: Path
) -> None:
    # Without its compiler from Debian, which would be installed for this name alone.
    other = scratch.model_copy(update={"name": "scratch-jax", "frameworks": ("jax",), "debian": {}})
    other = other.model_copy(update={"folder": shutil.copytree(scratch.folder, project / "images" / other.name)})
    before = {image.name: builder.build(image, client=client) for image in (scratch, other)}
    layers = client.images.get(before[other.name]).attrs["RootFS"]["Layers"]
    with (project / "bench" / "frameworks" / "jax" / "gru_imdb.py").open("a") as file:
        file.write("# edited\n")
    asked: list[str] = []
    client.api.hooks["response"].append(lambda answer, *_, **__: asked.append(answer.request.path_url))
    try:
        here = list_images(client)
        assert builder.build(scratch, client=client, say=pytest.fail, images=here) == before[scratch.name]
        assert len(asked) == 1, asked
        begin = time.monotonic()
        after = builder.build(other, client=client, images=here)
        # Two seconds where nothing else runs.
        assert time.monotonic() - begin < 30
    finally:
        client.api.hooks["response"].pop()
    changed = client.images.get(after).attrs["RootFS"]["Layers"]
    assert (changed[:-1], len(changed)) == (layers[:-1], len(layers))
    assert changed[-1] != layers[-1]


def test_the_engine_is_asked_once_which_images_are_current(engine: DockerEngine, catalog: dict[str, Image]) -> None:
    engine = DockerEngine()
    asked: list[str] = []
    assert engine.unavailable() is None
    engine._client.api.hooks["response"].append(lambda answer, *_, **__: asked.append(answer.request.path_url))
    for image in catalog.values():
        engine.parts(image)
    assert len(asked) == 1, asked


@only_with("DLBENCH_CURVES", "a base that a registry pins is tested with each change")
def test_a_base_image_made_anew_under_its_name_is_another_base(client: Any, base_image: str, scratch: Image) -> None:
    client.images.get(base_image).tag("dlbench/scratch-base", "test")
    try:
        first = builder.build(scratch, "dlbench/scratch-base:test", client=client)
        wanted = recipes.recipe(scratch, "dlbench/scratch-base:test")
        assert builder.built(list_images(client), wanted) == first
        client.images.get(first).tag("dlbench/scratch-base", "test")
        assert builder.built(list_images(client), wanted) is None
    finally:
        client.images.remove("dlbench/scratch-base:test", force=True)


def test_a_file_with_another_hash_than_the_lock_says_is_refused(
    client: Any, base_image: str, scratch: Image, tmp_path: Path
) -> None:
    tampered = re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, scratch.lock_path.read_text())
    scratch.lock_path.write_text(tampered)
    with pytest.raises(builder.BuildError) as error:
        builder.build(scratch, client=client, logs=tmp_path / "logs")
    assert "the package index served another file than the lock pins (DO NOT MATCH THE HASHES)" in str(error.value)
    assert builder.built(list_images(client), recipes.recipe(scratch)) is None


def test_a_failed_build_shows_its_last_lines_and_where_the_log_lies(
    client: Any, base_image: str, scratch: Image, project: Path, tmp_path: Path
) -> None:
    with open(project / "images" / "Dockerfile", "a") as dockerfile:
        dockerfile.write('RUN for i in $(seq 99); do echo "line $i"; done; echo "this is why" >&2; exit 7\n')
    with pytest.raises(builder.BuildError) as error:
        builder.build(scratch, client=client, logs=tmp_path / "logs")
    message = str(error.value)
    assert "this is why" in message
    assert "returned a non-zero code: 7" in message
    assert "line 99" in message
    assert "line 70\n" not in message
    log = tmp_path / "logs" / "scratch.log"
    assert str(log) in message
    assert "line 1\n" in log.read_text()


def test_the_site_chooses_the_network_of_a_build(
    client: Any, base_image: str, scratch: Image, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dockerfile = 'ARG BASE\nFROM ${BASE}\nRUN echo "networks:" $(ls /sys/class/net) && exit 1\n'
    (project / "images" / "Dockerfile").write_text(dockerfile)
    monkeypatch.setenv(builder.BUILD_NETWORK_VARIABLE, "none")
    with pytest.raises(builder.BuildError, match="networks: lo\n"):
        builder.build(scratch, client=client, logs=tmp_path / "logs")


def test_a_build_asks_the_site_s_package_index_and_the_image_says_nothing_of_it(
    client: Any, base_image: str, scratch: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = package_index.Release("only-on-the-mirror", "1.0")
    digest = hashlib.sha256(wheel.content).hexdigest()
    scratch.lock_path.write_text(f"only-on-the-mirror==1.0 \\\n    --hash=sha256:{digest}\n")
    image = scratch.model_copy(update={"debian": {}})
    monkeypatch.setenv(builder.BUILD_NETWORK_VARIABLE, "host")
    with package_index.serve([wheel]) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.1")
        built = client.images.get(builder.build(image, client=client))
    assert "PIP_" not in json.dumps([built.attrs, built.history()])
    assert client.containers.run(
        built.id, ["-m", "pip", "show", "only-on-the-mirror"], entrypoint="python", remove=True
    ).startswith(b"Name: only-on-the-mirror\nVersion: 1.0\n")


def test_a_base_image_that_is_nowhere_is_told_with_what_to_do_before_and_when_it_is_needed(
    client: Any, scratch: Image, tmp_path: Path
) -> None:
    nowhere = "127.0.0.1:9/no-such-base:{python}"
    with pytest.raises(builder.BuildError) as error:
        builder.build(scratch, nowhere, client=client, logs=tmp_path / "logs")
    for told in (str(error.value), str(DockerEngine(Settings(nowhere)).unfit(scratch))):
        assert "127.0.0.1:9/no-such-base:3.11 is not here and cannot be pulled" in told
        assert ".ci/site-base 3.11" in told
        assert "DLBENCH_BASE_IMAGE" in told


def test_an_image_whose_base_is_here_can_run(engine: DockerEngine, base_image: str, catalog: dict[str, Image]) -> None:
    assert [engine.unfit(catalog[name]) for name in CPU_IMAGES] == [None, None, None]
