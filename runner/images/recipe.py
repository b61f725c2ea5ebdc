"""What a build of an image depends on, and the names that follow from it: the same inputs have the same tag."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import identity
from runner.catalog.images import Image
from runner.paths import PROJECT

BASE_IMAGE_VARIABLE = "DLBENCH_BASE_IMAGE"

# The oldest CUDA that a driver must run for an image of a CUDA family: the family's first, never the exact release, so
# that minor-version compatibility works.
_CUDA_FLOOR = "cuda>={major}.0"


@dataclass(frozen=True)
class Recipe:
    """All that a build depends on, and the names that follow from it."""

    image: Image
    base: str  # the reference of the base image, Python filled in
    dockerfiles_sha256: str
    bench_sha256: str  # of the image's part of the bench

    @property
    def base_tag(self) -> str:
        """The tag of the common layers on this base image."""
        below = self.python_tag if self.image.cuda_from == "base" else self.base
        return f"dlbench/base:{_sha256(below, _read_digest(PROJECT / 'Dockerfile.base'))[:12]}"

    @property
    def python_tag(self) -> str:
        """The tag of a CUDA base image with the distribution's Python."""
        return f"dlbench/cuda:{_sha256(self.base, _read_digest(PROJECT / 'images' / 'Dockerfile.cuda'))[:12]}"

    @property
    def julia_tag(self) -> str:
        """The tag of those layers with Julia and the image's packages."""
        files = [_read_digest(path) for path in (PROJECT / "images" / "Dockerfile.julia", *self.image.julia_paths)]
        return f"dlbench/julia:{_sha256(self.base_tag, self.image.julia, *files)[:12]}"

    @property
    def tag(self) -> str:
        """The tag of the image with exactly these inputs."""
        content = _sha256(self.base, self.dockerfiles_sha256, self.image.lock_sha256, self.bench_sha256)
        return f"dlbench/{self.image.name}:{content[:12]}"

    @property
    def input_tag(self) -> str:
        """12 hex digits that change with anything that the image is made of, and with nothing else."""
        return self.tag.rpartition(":")[2]

    @property
    def latest(self) -> str:
        """The tag that compose files and people use: the last one built."""
        return f"dlbench/{self.image.name}:latest"

    def labels(self, base_id: str) -> dict[str, str]:
        """What a built image says of itself, so that a stale or foreign one is seen without starting it."""
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
            "org.opencontainers.image.base.name": self.base.partition("@")[0],
        }
        if "@" in self.base:
            common["org.opencontainers.image.base.digest"] = self.base.partition("@")[2]
        return common | {f"dlbench.{name}": value for name, value in own.items() if value is not None}


def recipe(image: Image, base_image: str | None = None) -> Recipe:
    """What a build of the image depends on. `base_image` or DLBENCH_BASE_IMAGE stands in for the image's own base.

    In it {python} and {cuda} are the image's versions. A stand-in for any Python is none for an image whose base brings CUDA.
    """
    template = base_image or os.environ.get(BASE_IMAGE_VARIABLE)
    if template and image.cuda_from == "base" and "{python}" in template and "{cuda}" not in template:
        template = None
    stand_in = template and template.replace("{python}", image.python).replace("{cuda}", image.cuda or "")
    base = stand_in or image.base_reference
    steps = ["Dockerfile.base", "images/Dockerfile"]
    steps += ["images/Dockerfile.cuda"] if image.cuda_from == "base" else []
    steps += ["images/Dockerfile.julia"] if image.julia else []
    dockerfiles = _sha256(*(_read_digest(PROJECT / name) for name in steps))
    return Recipe(image, base, dockerfiles, identity.digest(bench_files(image), str(PROJECT / "bench")))


def build_arguments(image: Image) -> dict[str, str]:
    """The build arguments of images/Dockerfile."""
    arguments = {
        "IMAGE": image.name,
        "EXTRA_INDEX": image.extra_index or "",
        "DEBIAN": " ".join(sorted(image.debian)),
        "FRAMEWORKS": " ".join(identity.folders(image.frameworks, str(PROJECT / "bench"))),
    }
    if image.accelerator == "cuda":
        floor = _CUDA_FLOOR.format(major=(image.cuda or "").split(".")[0])
        arguments |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_REQUIRE_CUDA": floor}
    return arguments


def installed_files(image: Image) -> list[Path]:
    """What of the image's folder says what is installed: its locks, and finish.sh."""
    return [path for path in (image.lock_path, image.sources_path, image.finish_path) if path.is_file()]


def bench_files(image: Image) -> list[str]:
    """What of the bench goes into an image, relative to the folder `bench`: the core, all workloads, its own frameworks."""
    return list(identity.image_files(image.frameworks, str(PROJECT / "bench")))


def _read_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sha256(*parts: Any) -> str:
    return hashlib.sha256("\n".join(str(part) for part in parts).encode()).hexdigest()
