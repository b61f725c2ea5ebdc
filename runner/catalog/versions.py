"""The versions that a cell says, held against those that its image is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from runner.catalog.images import Image, read_pins
from runner.results.on_disk.image_names import NO_LOCK, is_address

PROVED = "proved by the lock"

# Of CUDA a framework may know the release and not the package, and of cuDNN the release that it was built with. TensorFlow 1.15 says less.
_PARTS = {"python": 2, "cuda": 2, "cudnn": 1}

# Every image has it, so it says nothing of the framework.
_EVERYWHERE = "numpy"


def contradiction(image: Image, said: Mapping[str, Any]) -> str | None:
    """The contradiction of a cell's event `environment` to its image's lock or image.toml, as a sentence."""
    versions: Mapping[str, str] = said["versions"]
    pins = _pins(image)
    for name, parts in _PARTS.items():
        declared: str | None = getattr(image, name)
        version = versions.get(name)
        if declared and version and not is_within(version, declared, parts):
            return f"it reports {name} {version[:50]}, and {image.name} has {declared}"
    named = {name: pins[key] for name in versions if (key := canonicalize_name(name)) in pins}
    for name, pinned in named.items():
        if not _same(versions[name], pinned):
            return f"it reports {name} {versions[name][:50]}, and the lock of {image.name} pins {pinned}"
    # An image of Theano serves Lasagne too, each with its own version.
    release = image.version_of(said["framework"])
    possible = [release, *(pinned for name, pinned in named.items() if name != _EVERYWHERE)]
    version = said["framework_version"]
    if not any(_same(version, each) for each in possible):
        return f"it reports {said['framework']} {version[:50]}, and {image.name} has {release}"
    return None


def is_within(version: str, declared: str, parts: int) -> bool:
    """True if `parts` parts of a version, as far as it has them, are those of the declared one."""
    said = version.split(".")[:parts]
    return said == declared.split(".")[: len(said)]


def proof(image: Image | None, said: Mapping[str, Any] | None, name: str = "") -> str:
    """The proof that a cell's version is one that the lock of its image, of this name, pins: PROVED, or "not proved" and why."""
    if is_address(name):
        return f"not proved: {NO_LOCK}"
    if image is None or said is None:
        return "not proved: no image is known"
    if not (pins := _pins(image)):
        return "not proved: what it ran in has no lock"
    if any(_same(said["framework_version"], pinned) for name, pinned in pins.items() if name != _EVERYWHERE):
        return PROVED
    return f"not proved: no package in the lock of {image.name} has it"


def _pins(image: Image) -> dict[str, str]:
    """Normalised name -> version of what the image's locks pin; empty where it has none: it is an interpreter of the user's."""
    return {pin.name: pin.version for path in image.locks if path.is_file() for pin in read_pins(path)}


def _same(said: str, pinned: str) -> bool:
    """True if two versions are of one release. A build adds to it: "+cpu", ".post1"."""
    try:
        return Version(Version(said).base_version) == Version(Version(pinned).base_version)
    except InvalidVersion:
        return False
