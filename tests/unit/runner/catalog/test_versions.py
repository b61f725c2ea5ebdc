"""The versions that a cell says are held against its image's lock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.catalog import images
from runner.catalog.images import PROJECT, load_catalog
from runner.engines.process.host import HostImage

TRIED = sorted((PROJECT / "docs" / "tried").glob("*.json"))
RECORDED = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))


def said(framework: str, version: str, **others: str) -> dict[str, Any]:
    return {"framework": framework, "framework_version": version, "versions": others}


@pytest.mark.parametrize("path", TRIED, ids=lambda path: path.stem)
def test_what_each_image_said_when_it_was_tried_is_what_it_holds(path: Path) -> None:
    """The package that a framework names beside it is its own, or Keras."""
    tried = json.loads(path.read_text())
    image = load_catalog()[tried["image"]]
    for framework, version in tried["imported"].items():
        package = "keras" if framework.startswith("keras") else framework
        assert images.version_contradiction(image, said(framework, version, **{package: version})) is None
        assert images.version_contradiction(image, said(framework, "99.9")) == (
            f"it reports {framework} 99.9, and {image.name} has {image.framework_version}"
        )


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_real_cells_said_is_what_their_image_holds(path: Path) -> None:
    (event,) = [
        event for line in path.read_text().splitlines() if (event := json.loads(line))["event"] == "environment"
    ]
    image = load_catalog()[path.stem.rsplit(".", 1)[0]]
    assert images.version_contradiction(image, event) is None
    assert images.version_proof(image, event) == images.PROVED


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"python": "3.12.1"}, "it reports python 3.12.1, and torch-2.13.0-cpu has 3.11"),
        ({"numpy": "1.0"}, "it reports numpy 1.0, and the lock of torch-2.13.0-cpu pins 2.4.6"),
        (
            {"torch": "not a version"},
            "it reports torch not a version, and the lock of torch-2.13.0-cpu pins 2.13.0",
        ),
        ({"torch": "2.13.0+cu130", "compiler": "g++ 13"}, None),
        ({"torch": "2.13.0.post1"}, None),
    ],
)
def test_every_package_that_the_lock_pins_is_compared(others: dict[str, str], expected: str | None) -> None:
    why = images.version_contradiction(load_catalog()["torch-2.13.0-cpu"], said("torch", "2.13.0", **others))
    assert (why or "").startswith(expected or "")
    assert (why is None) == (expected is None)


def test_another_release_of_cuda_is_named() -> None:
    image = load_catalog()["torch-2.9.1-cu128"]
    assert images.version_contradiction(image, said("torch", "2.9.1", cuda="12.8")) is None
    # TensorFlow 1.15 says no more than this.
    assert images.version_contradiction(image, said("torch", "2.9.1", cuda="12", cudnn="9")) is None
    why = images.version_contradiction(image, said("torch", "2.9.1", cuda="13.0"))
    assert why == f"it reports cuda 13.0, and torch-2.9.1-cu128 has {image.cuda}"


def test_the_version_of_numpy_is_none_of_a_frameworks() -> None:
    image = load_catalog()["torch-2.13.0-cpu"]
    assert images.version_contradiction(image, said("torch", "2.4.6", numpy="2.4.6")) is not None
    assert (
        images.version_proof(image, said("torch", "2.4.6"))
        == "not proved: no package in the lock of torch-2.13.0-cpu has it"
    )


def test_an_interpreter_without_a_lock_proves_no_version() -> None:
    image = HostImage.model_construct(
        name="host", folder=PROJECT, frameworks=("torch",), framework_version="2.13.0", python="3.11", installed_sha256="0"
    )  # fmt: skip
    assert images.version_contradiction(image, said("torch", "2.13.0")) is None
    assert images.version_contradiction(image, said("torch", "2.14.0")) is not None
    assert images.version_proof(image, said("torch", "2.13.0")) == "not proved: what it ran in has no lock"
    assert images.version_proof(None, said("torch", "2.13.0")) == "not proved: no image is known"
    assert images.version_proof(image, None) == "not proved: no image is known"
