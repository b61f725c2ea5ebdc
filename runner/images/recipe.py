"""The inputs of an image's build, and the names that follow from them: the same inputs have the same tag."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import identity
from runner.catalog.images import Image
from runner.errors import EngineError
from runner.images.lock_facts import nvidia_layers, wheel_bytes
from runner.paths import PROJECT

BASE_IMAGE_VARIABLE = "DLBENCH_BASE_IMAGE"
SOURCE_VARIABLE = "DLBENCH_SOURCE"

# The oldest CUDA that a driver must run for an image of a CUDA family: the family's first, never the exact release, so
# that minor-version compatibility works.
_CUDA_FLOOR = "cuda>={major}.0"


@dataclass(frozen=True)
class SharedLayer:
    """A layer of NVIDIA's wheels, of whichever image."""

    digest: str  # 12 hex digits of its Dockerfile, of the wheels in it, and of those in the layers of wheels below it
    pins: tuple[str, ...]  # name==version and the hashes of each wheel, as pip reads them

    @property
    def argument(self) -> str:
        """The build argument of images/Dockerfile.nvidia."""
        return " ".join(self.pins)

    @property
    def wheels(self) -> list[str]:
        """Each wheel as name==version."""
        return [pin.partition(" ")[0] for pin in self.pins]


@dataclass(frozen=True)
class Recipe:
    """All that a build depends on, and the names that follow from it."""

    image: Image
    base: str  # the reference of the base image, Python filled in
    dockerfiles_sha256: str
    bench_sha256: str  # of the image's part of the bench
    nvidia: tuple[SharedLayer, ...] = ()  # of NVIDIA's wheels, the lowest first
    # for a build beside the images that are in use, in which no earlier build's layer serves
    again: bool = False

    @property
    def _owner(self) -> str:
        return "dlbench-again" if self.again else "dlbench"

    @property
    def base_tag(self) -> str:
        """The tag of the common layers on this base image."""
        below = self._python_digits if self.image.cuda_from == "base" else self.base
        return f"{self._owner}/base:{_sha256(below, _read_digest(PROJECT / 'Dockerfile.base'))[:12]}"

    @property
    def python_tag(self) -> str:
        """The tag of a CUDA base image with the distribution's Python."""
        return f"{self._owner}/cuda:{self._python_digits}"

    @property
    def _python_digits(self) -> str:
        return _sha256(self.base, _read_digest(PROJECT / "images" / "Dockerfile.cuda"))[:12]

    @property
    def julia_tag(self) -> str:
        """The tag of those layers with Julia and the image's packages."""
        files = [_read_digest(path) for path in (PROJECT / "images" / "Dockerfile.julia", *self.image.julia_paths)]
        return f"{self._owner}/julia:{_sha256(self.base_tag, self.image.julia, *files)[:12]}"

    @property
    def nvidia_tags(self) -> list[str]:
        """The tags of the common layers with NVIDIA's wheels, the lowest first. Each is of the layers below it and nothing else."""
        return [f"{self._owner}/nvidia:{_sha256(self.base_tag, layer.digest)[:12]}" for layer in self.nvidia]

    @property
    def below_tag(self) -> str:
        """The tag of what the image's own layers are built on."""
        return self.julia_tag if self.image.julia else [self.base_tag, *self.nvidia_tags][-1]

    @property
    def layers(self) -> str:
        """12 hex digits that change with anything that lies below the bench: the base, the Dockerfiles, the lock, the build arguments."""
        arguments = [f"{name}={value}" for name, value in sorted(_arguments(self.image).items())]
        arguments += [layer.digest for layer in self.nvidia]
        return _sha256(self.base, self.dockerfiles_sha256, self.image.locks_sha256, *arguments)[:12]

    @property
    def input_tag(self) -> str:
        """`layers`, a dash, and 12 hex digits of the bench and the labels: it changes with anything that the image is made of.

        Two tags with the same first half are images that differ in their last layers only. The images of all architectures have one tag: an
        index in a registry holds them.
        """
        labels = self.labels("") | {"dlbench.lock_sha256": self.image.locks_sha256}
        return f"{self.layers}-{_sha256(*sorted(labels.items()))[:12]}"

    @property
    def tag(self) -> str:
        """The name of the image with exactly these inputs."""
        return f"{self._owner}/{self.image.name}:{self.input_tag}"

    @property
    def latest(self) -> str:
        """The tag that compose files and people use: the last one built."""
        return f"{self._owner}/{self.image.name}:latest"

    @property
    def steps_tag(self) -> str:
        """The name of what the builder made last. Its steps are the builder's cache."""
        return f"{self._owner}/steps:{self.image.name}"

    @property
    def names(self) -> list[str]:
        """Every name that a build gives, the image's own first. The engine removes an image without a name."""
        names = [self.tag, self.steps_tag]
        names += [self.julia_tag] if self.image.julia else []
        names += [*reversed(self.nvidia_tags), self.base_tag]
        return names + ([self.python_tag] if self.image.cuda_from == "base" else [])

    @property
    def created(self) -> str:
        """The time that the image says it was made: the day of its lock, since the same inputs give the same image on any day."""
        return f"{self.image.locked}T00:00:00Z"

    def common_labels(self, base_id: str) -> dict[str, str]:
        """The labels of the common layers, and with them of every step of an image: that they are ours, and their base."""
        return {
            "dlbench.base": self.base,
            "dlbench.base_id": base_id,
            "dlbench.common": common_digests()[self.image.cuda_from == "base"],
        }

    def labels(self, base_id: str) -> dict[str, str]:
        """The labels of a built image, so that a stale or foreign one is seen without starting it."""
        image = self.image
        own = {
            "image": image.name,
            "framework": ",".join(image.frameworks),
            "framework_version": image.framework_version,
            "accelerator": image.accelerator,
            "cuda": image.cuda,
            "cudnn": image.cudnn,
            "nccl": image.nccl,
            "min_driver": image.min_driver,
            "min_compute_capability": image.min_compute_capability,
            "max_compute_capability": image.max_compute_capability,
            "lock_sha256": image.lock_sha256,
            "nvidia": self.nvidia[-1].digest if self.nvidia else None,
            "bench_sha256": self.bench_sha256,
            "dockerfiles_sha256": self.dockerfiles_sha256,
            "base": self.base,
            "base_id": base_id,
        }
        common = {
            "org.opencontainers.image.title": image.name,
            "org.opencontainers.image.description": image.notes
            or f"{', '.join(image.frameworks)} {image.framework_version}",
            "org.opencontainers.image.version": image.framework_version,
            "org.opencontainers.image.created": self.created,
            "org.opencontainers.image.base.name": self.base.partition("@")[0],
        }
        if "@" in self.base:
            common["org.opencontainers.image.base.digest"] = self.base.partition("@")[2]
        return common | {f"dlbench.{name}": value for name, value in own.items() if value is not None}


def source_label() -> dict[str, str]:
    """The address of an image's sources, from the builder (DLBENCH_SOURCE). Raises EngineError for what is no address.

    It is no input: an image of equal inputs is the same image, whoever built it. A registry joins an image to a repository by it.
    """
    address = os.environ.get(SOURCE_VARIABLE)
    if not address:
        return {}
    if not re.fullmatch(r"https?://[\w.~:/%+-]{1,500}", address, re.ASCII):
        raise EngineError(
            f"{SOURCE_VARIABLE}={address[:100]!r} is no address of a repository; give one as https://github.com/OWNER/NAME, or none"
        )
    return {"org.opencontainers.image.source": address}


def recipe(image: Image, base_image: str | None = None) -> Recipe:
    """The inputs of the image's build. `base_image` or DLBENCH_BASE_IMAGE stands in for the image's own base."""
    base = base_reference(image, base_image or os.environ.get(BASE_IMAGE_VARIABLE))
    steps = ["Dockerfile.base", "images/Dockerfile", "images/links.sh"]
    steps += ["images/Dockerfile.cuda"] if image.cuda_from == "base" else []
    steps += ["images/Dockerfile.julia"] if image.julia else []
    dockerfiles = _sha256(*(_read_digest(PROJECT / name) for name in steps))
    bench = identity.digest(bench_files(image), str(PROJECT / "bench"))
    return Recipe(image, base, dockerfiles, bench, shared_layers(image))


def shared_layers(image: Image) -> tuple[SharedLayer, ...]:
    """The layers of NVIDIA's wheels below an image, the lowest first. Julia's packages are installed on the common layers alone."""
    found = () if image.julia else nvidia_layers(image.lock_path.read_text(encoding="utf-8"))
    if not found:
        return ()
    layers, digest = [], _read_digest(PROJECT / "images" / "Dockerfile.nvidia")
    for pins in found:
        digest = _sha256(digest, *pins)
        layers.append(SharedLayer(digest[:12], pins))
    return tuple(layers)


def layer_bytes(image: Image) -> dict[SharedLayer, int]:
    """The layers of NVIDIA's wheels below an image, with the bytes that pip fetches for each."""
    sizes = wheel_bytes(image)
    return {layer: sum(sizes.get(wheel, 0) for wheel in layer.wheels) for layer in shared_layers(image)}


def base_reference(image: Image, template: str | None) -> str:
    """The reference of the image's base: its own, or the site's.

    In the template {python} and {cuda} are the image's versions. {base} is its own base as Docker Hub has it, with the digest
    where that is known: library/python:3.11-slim-bookworm. A stand-in for any Python is none for a base that brings CUDA.
    """
    if not template or (image.cuda_from == "base" and "{python}" in template and "{cuda}" not in template):
        return image.base_reference
    on_docker_hub = image.base_reference if "/" in image.base else f"library/{image.base_reference}"
    values = {"{python}": image.python, "{cuda}": image.cuda or "", "{base}": on_docker_hub}
    return re.sub(r"\{(?:python|cuda|base)\}", lambda match: values[match[0]], template)


def common_digests() -> tuple[str, str]:
    """The digests of the Dockerfiles of common layers: on a base with Python, and on one without."""
    base, cuda = _read_digest(PROJECT / "Dockerfile.base"), PROJECT / "images" / "Dockerfile.cuda"
    return base[:12], _sha256(base, _read_digest(cuda))[:12] if cuda.is_file() else ""


def build_arguments(image: Image) -> dict[str, str]:
    """The build arguments of images/Dockerfile."""
    return _arguments(image, FRAMEWORKS=" ".join(identity.folders(image.frameworks, str(PROJECT / "bench"))))


def _arguments(image: Image, **of_the_bench: str) -> dict[str, str]:
    """The build arguments. Those of the bench are read from all its sources."""
    arguments = {
        "IMAGE": image.name,
        "EXTRA_INDEX": image.extra_index or "",
        "DEBIAN": " ".join(sorted(image.debian)),
        **of_the_bench,
    }
    if image.accelerator == "cuda":
        floor = _CUDA_FLOOR.format(major=(image.cuda or "").split(".")[0])
        arguments |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_REQUIRE_CUDA": floor}
    return arguments


def installed_files(image: Image) -> list[Path]:
    """The files of the image's folder that decide what is installed: the locks of every architecture, and finish.sh."""
    lock = image.on("").lock_path
    return [path for path in (lock, *image.other_locks, image.sources_path, image.finish_path) if path.is_file()]


def bench_files(image: Image) -> list[str]:
    """The bench's files in an image, relative to the folder `bench`: the core, all workloads, its own frameworks."""
    return list(identity.image_files(image.frameworks, str(PROJECT / "bench")))


def _read_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sha256(*parts: Any) -> str:
    return hashlib.sha256("\n".join(str(part) for part in parts).encode()).hexdigest()
