"""Images that the disk cannot hold are left out before anything is fetched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runner.catalog.images import Image, load_catalog
from runner.engines.docker.engine import DockerEngine
from runner.plan.disk import DiskSpace


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def catalog() -> list[Image]:
    return list(load_catalog().values())


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DockerEngine:
    """An engine that has none of the images, on a disk with 10 GB."""
    monkeypatch.setattr(DockerEngine, "unfit", lambda self, image: None)
    monkeypatch.setattr(DockerEngine, "cost", lambda self, image: image.download_bytes)
    monkeypatch.setattr(DockerEngine, "images_folder", lambda self: tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(20 * 10**9, 10**10, 10**10))
    return DockerEngine()


def test_what_fits_together_is_made_and_the_rest_says_what_it_would_take(
    engine: DockerEngine, catalog: list[Image]
) -> None:
    disk = DiskSpace(engine)
    told: dict[str, str | None] = {image.name: disk.unfit(image) for image in catalog}
    fits = [image for image in catalog if told[image.name] is None]
    assert fits
    assert sum(image.download_bytes * 4.5 for image in fits) <= 10**10
    large = next(image for image in catalog if image.name == "torch-2.9.1-cu128")
    assert f"the disk cannot hold it: it takes about {large.download_bytes * 4.5 / 1e9:.1f} GB" in str(told[large.name])
    assert told == {image.name: disk.unfit(image) for image in catalog}, "asked again, it says the same"


def test_an_image_that_is_there_takes_no_room(
    engine: DockerEngine, catalog: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DockerEngine, "cost", lambda self, image: 0)
    disk: Any = DiskSpace(engine)
    assert [disk.unfit(image) for image in catalog] == [None] * len(catalog)
