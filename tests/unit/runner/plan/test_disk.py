"""Images that the disk cannot hold are left out before anything is fetched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import Image, load_catalog
from runner.catalog.workloads import load_workloads
from runner.engines.base import Settings
from runner.engines.cell_cache import Room
from runner.engines.docker import engine as docker_engine
from runner.engines.docker.engine import DockerEngine
from runner.images import builder
from runner.images.docker_client import Listing
from runner.images.recipe import Recipe, recipe
from runner.images.transfer import folder as transfer
from runner.machine.devices import Machine
from runner.plan.durations import LEAST_FILES, fitting
from runner.plan.plan import Plan, plan
from runner.plan.request import Request
from runner.run.outlook import reasons
from tests.fixtures.plans import NO_GPU, make_cell, with_gpu


@pytest.fixture
def catalog() -> list[Image]:
    return list(load_catalog().values())


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DockerEngine:
    """An engine that has none of the images, on a disk with 10 GB."""
    monkeypatch.setattr(DockerEngine, "unfit", lambda self, image: None)
    monkeypatch.setattr(DockerEngine, "_listed", lambda self: Listing([]))
    monkeypatch.setattr(DockerEngine, "images_folder", lambda self: tmp_path)
    monkeypatch.setattr(Room, "of", lambda folder: Room(10**10, None))
    return DockerEngine()


def on_a_disk(engine: DockerEngine, free: int, monkeypatch: pytest.MonkeyPatch, machine: Machine = NO_GPU) -> Plan:
    """The plan of a machine whose disk has so many bytes."""
    monkeypatch.setattr(Room, "of", lambda folder: Room(free, None))
    images = load_catalog()
    return fitting(planned(machine), images, engine)


def planned(machine: Machine) -> Plan:
    return plan(
        Request(), list(load_catalog().values()), load_workloads(), load_frameworks(), machine, lambda image: None
    )


def test_what_fits_together_is_made_and_the_rest_says_what_it_would_take(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, images = with_gpu(driver="595.10"), load_catalog()
    whole = planned(machine)
    held = on_a_disk(engine, 6 * 10**10, monkeypatch, machine)
    fits = {cell.image for cell in held.cells}
    parts = {name: size for image in fits for name, size in engine.parts(images[image]).items()}
    assert 0 < sum(parts.values()) * 2.8 <= 6 * 10**10
    skipped = {skip.image: skip for skip in held.skips if skip.reason.startswith("the disk cannot hold it")}
    assert fits.isdisjoint(skipped)
    assert fits | set(skipped) == {cell.image for cell in whole.cells}
    assert len(held.cells) + len(held.skips) == len(whole.cells) + len(whole.skips)
    large = images["torch-2.7.1-cu126"]
    taken = sum(size for part, size in engine.parts(large).items() if part not in parts)
    assert f"it takes about {taken * 2.8 / 1e9:.1f} GB; " in skipped[large.name].reason
    # One line for all of them, though each is of another size.
    (line,) = (line for line in reasons(held.skips) if "the disk cannot hold it" in line)
    assert line.startswith(f"skipped {len(held.skips) - len(whole.skips)}: ")
    assert re.search(r"it takes about [\d.]+ to [\d.]+ GB; free some", line)


def test_a_small_disk_holds_the_newest_image_of_the_framework_that_most_people_use(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, images = with_gpu(driver="595.10"), load_catalog()
    needed = round(sum(engine.parts(images["torch-2.15.0-cu132"]).values()) * 2.8)
    held = on_a_disk(engine, needed + 1, monkeypatch, machine)
    assert "torch-2.15.0-cu132" in {cell.image for cell in held.cells}
    # Of each framework that most people use one image comes before a second one of any.
    three = ["torch-2.15.0-cu132", "tensorflow-2.21.0-cu128", "jax-0.12.0.1-cu132"]
    parts = {name: size for image in three for name, size in engine.parts(images[image]).items()}
    held = on_a_disk(engine, round(sum(parts.values()) * 2.8) + 3, monkeypatch, machine)
    assert set(three) <= {cell.image for cell in held.cells}


def test_an_image_that_is_there_takes_no_room(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DockerEngine, "parts", lambda self, image: {})
    whole = planned(NO_GPU)
    assert whole.cells
    assert on_a_disk(engine, 0, monkeypatch) == whole


SITE = "site:1"


def exported(folder: Path, image: Image, size: int) -> None:
    """An exported image, as far as a plan looks at it: a file of so many bytes takes no disk here."""
    made, sha256 = recipe(image, SITE), "0" * 64
    entry = transfer.Exported(image=image.name, tag=made.tag, base_id="sha256:1", sha256=sha256, bytes=size)
    transfer.description(folder, made).write_text(entry.model_dump_json())
    with open(folder / f"{sha256}.tar", "wb") as file:
        file.truncate(size)


def test_an_exported_image_takes_its_own_size_and_no_more(
    engine: DockerEngine, catalog: list[Image], tmp_path: Path
) -> None:
    image, loads = catalog[0], DockerEngine(Settings(SITE, images_from=tmp_path))
    exported(tmp_path, image, 9_999_999_999)
    assert sum(loads.parts(image).values()) == 9_999_999_999
    whole = Plan((make_cell(image=image.name, framework=image.frameworks[0]),), ())
    assert fitting(whole, {image.name: image}, loads) == whole
    exported(tmp_path, image, 10_000_000_001)
    (skip,) = fitting(whole, {image.name: image}, loads).skips
    assert "it takes about 10.0 GB" in skip.reason


def test_nodes_plan_only_what_they_can_get(
    engine: DockerEngine, catalog: list[Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell whose image a node would not get is skipped there, with the reason, before anything is fetched or begun."""
    image, other, pinned = catalog[:3]
    tag = f"r.example/{pinned.name}:{recipe(pinned, SITE).input_tag}"
    pinned = pinned.model_copy(update={"published": f"{tag}@sha256:{'0' * 64}"})
    exported(tmp_path, image, 1000)

    def reasons(may_build: bool) -> list[bool]:
        node = DockerEngine(Settings(SITE, images_from=tmp_path, may_build=may_build))
        each = [node.unobtainable(image) or "" for image in (image, other, pinned)]
        return [why.startswith("it is not here, and nodes build no images unless --build is given") for why in each]

    assert reasons(may_build=False) == [False, True, False]
    assert reasons(may_build=True) == [False, False, False]
    here = [Listing([{"Id": f"sha256:{number}", "RepoTags": [SITE]}]) for number in range(2)]
    monkeypatch.setattr(DockerEngine, "_listed", lambda self: here[1])
    assert reasons(may_build=False) == [False, True, False]
    # The exported image would not be loaded beside another base image.
    monkeypatch.setattr(DockerEngine, "_listed", lambda self: here[0])
    assert reasons(may_build=False) == [True, True, False]


def test_layers_that_images_share_are_counted_once(
    engine: DockerEngine, catalog: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    jax, tensorflow = (image for image in catalog if image.name in ("jax-0.12.0.1-cu128", "tensorflow-2.21.0-cu128"))
    shared = engine.parts(jax).keys() & engine.parts(tensorflow).keys()
    assert shared == set(recipe(jax).nvidia_tags[:4])
    assert sum(engine.parts(jax).values()) == jax.download_bytes
    both = jax.download_bytes + tensorflow.download_bytes - sum(engine.parts(jax)[name] for name in shared)
    assert both < 0.7 * (jax.download_bytes + tensorflow.download_bytes)
    for free, fits in ((round(both * 2.8) + 2, True), (round(both * 2.8) - 2, False)):
        monkeypatch.setattr(Room, "of", lambda folder, free=free: Room(free, None))
        cells = tuple(make_cell(image=image.name, framework=image.frameworks[0]) for image in (jax, tensorflow))
        held = fitting(Plan(cells, ()), {image.name: image for image in (jax, tensorflow)}, engine)
        # TensorFlow comes first.
        assert [cell.image for cell in held.cells] == [jax.name, tensorflow.name][0 if fits else 1 :]
    # What is here is not fetched.
    here = [{"Id": f"sha256:{number}", "RepoTags": [name]} for number, name in enumerate(shared)]
    monkeypatch.setattr(DockerEngine, "_listed", lambda self: Listing(here))
    assert sum(engine.parts(tensorflow).values()) == both - jax.download_bytes


def test_an_engine_reads_what_an_image_depends_on_once_until_it_prepares_one(
    engine: DockerEngine, catalog: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(image: Image, base_image: str | None) -> Recipe:
        read.append(image.name)
        return recipe(image, base_image)

    monkeypatch.setattr(docker_engine, "make_recipe", counted)
    first, second = catalog[:2]
    for image in (first, second, first, second):
        engine.parts(image)
    assert read == [first.name, second.name]

    def fails(*_: Any, **__: Any) -> str:
        raise builder.BuildError("it cannot be built")

    monkeypatch.setattr(builder, "build", fails)
    monkeypatch.setattr(DockerEngine, "_client", None)
    with pytest.raises(builder.BuildError):
        engine.prepare(first, read.append)
    engine.parts(first)
    assert read == [first.name, second.name, first.name]


def test_a_disk_that_takes_no_more_files_holds_no_image(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inodes run out where `df` shows room."""
    monkeypatch.setattr(Room, "of", lambda folder: Room(10**13, 1500))
    held = fitting(planned(NO_GPU), load_catalog(), engine)
    assert held.cells == ()
    assert any(
        "the disk takes 1500 more files" in skip.reason and "XDG_CACHE_HOME" in skip.reason for skip in held.skips
    )


def test_the_images_of_a_plan_share_the_files_that_a_disk_takes(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for files, fits in ((2 * LEAST_FILES, 2), (2 * LEAST_FILES - 1, 1), (LEAST_FILES - 1, 0)):
        monkeypatch.setattr(Room, "of", lambda folder, files=files: Room(10**13, files))
        held = fitting(planned(NO_GPU), load_catalog(), engine)
        assert len({cell.image for cell in held.cells}) == fits
        left = files - fits * LEAST_FILES
        assert {skip.reason for skip in held.skips if "more files" in skip.reason} == {
            f"the disk cannot hold it: beside the images that come first the disk takes {left} more files, and an image has "
            f"{LEAST_FILES} or more (`df -i` counts them); free some, or take another disk: XDG_CACHE_HOME, or the engine's "
            "data-root"
        }
