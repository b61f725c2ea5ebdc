"""The real `runner matrix` with the real Docker engine; only the images are toys: all of them are the one tiny image.

Run as `python -m tests.engine.tiny_runner matrix ...`; DLBENCH_TINY is the tiny image's id. The catalog has images of several CUDA
releases, so that a fleet of several GPUs runs some and leaves some out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from bench import identity
from runner import engines
from runner.catalog.images import PROJECT, Image
from runner.engines.base import Launch, ReadyImage
from runner.engines.docker.engine import DockerEngine, DockerRunning
from runner.engines.process.host import HostImage
from runner.nodes.transports import transport

# name -> (oldest driver, least and greatest compute capability)
IMAGES = {
    "tiny-cu118": ("450.80.02", "5.0", "8.9"),
    "tiny-cu128": ("525.60.13", "7.0", "12.0"),
    "tiny-cu130": ("580.65.06", "7.5", "12.0"),
}


class TinyEngine(DockerEngine):
    """Docker, with images that need no build."""

    def images(self, gpus: bool) -> dict[str, Image]:
        return images()

    def unfit(self, image: Image) -> str | None:
        return None

    def parts(self, image: Image) -> Mapping[str, int]:
        return {}

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        return ReadyImage(image, os.environ["DLBENCH_TINY"], ("/cell",))

    def start(self, launch: Launch) -> DockerRunning:
        # The bench's own words: run WORKLOAD --framework F.
        code = identity.code_sha256(launch.arguments[launch.arguments.index("--framework") + 1], launch.arguments[1])
        return super().start(replace(launch, arguments=[*launch.arguments, "--code", code]))


def images() -> dict[str, Image]:
    fixed: dict[str, Any] = {
        "folder": PROJECT,
        "frameworks": tuple(os.environ.get("DLBENCH_TINY_FRAMEWORKS", "torch,jax").split(",")),
        "framework_version": "1.0",
        "python": "3.11",
        "accelerator": "cuda",
        "base": "tiny",
        "precisions": ("fp32", "tf32"),
        "no_modes": {"xla": "a tiny image runs in one mode"},
        "locked": date(2026, 1, 1),
        "download_gb": 0.0,
        "installed_sha256": "0" * 64,
    }
    found: dict[str, Image] = {}
    for name, (driver, low, high) in IMAGES.items():
        of_image = {"cuda": name[-3:-1] + "." + name[-1], "min_driver": driver}
        of_image |= {"min_compute_capability": low, "max_compute_capability": high}
        found[name] = HostImage.model_construct(name=name, **fixed, **of_image)
    return found


def main() -> None:
    engines.ENGINES["docker"] = "tests.engine.tiny_runner:TinyEngine"
    engines.AUTOMATIC = ["docker"]
    transport.AGENT = ("-m", "tests.engine.tiny_runner", "agent")
    from runner.cli.main import main

    main()


if __name__ == "__main__":
    main()
