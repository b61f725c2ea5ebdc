"""Where cells run: in containers, in virtual environments, or in the interpreter that is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.engines.base import Engine, EngineError

if TYPE_CHECKING:
    from runner.catalog import Image

ENGINES = ("auto", "docker", "venv", "host")


def choose(
    name: str,
    images: Sequence[Image],
    gpus: bool = False,
    base_image: str | None = None,
    python: Path | None = None,
) -> tuple[Engine, str]:
    """The engine of that name, and a sentence that says which and why. Raises EngineError when it cannot be used.

    `images` are those that are to run; `auto` is docker when that can make or has them, else venv.
    """
    from runner.engines.docker import DockerEngine
    from runner.engines.host import HostEngine
    from runner.engines.venv import VenvEngine

    if name == "auto":
        docker = DockerEngine(base_image)
        reason = docker.unavailable() or why_docker_cannot(images, gpus, base_image)
        if reason is None:
            return docker, "engine docker: it answers here and can make the images"
        return VenvEngine(), f"engine venv: docker is out, because {reason}"
    engine: Engine
    if name == "docker":
        engine = DockerEngine(base_image)
    elif name == "venv":
        engine = VenvEngine()
    elif name == "host":
        engine = HostEngine(python)
    else:
        raise EngineError(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
    if reason := engine.unavailable():
        raise EngineError(f"the engine {name} cannot be used: {reason}")
    return engine, f"engine {name}: as asked"


def why_docker_cannot(images: Sequence[Image], gpus: bool, base_image: str | None) -> str | None:
    """Why an engine that answers is no use for these images; None when it is. A clause."""
    import docker
    from docker.errors import DockerException

    from runner import build

    client = docker.from_env(version="auto", timeout=30)
    try:
        if gpus and not _has_gpu_runtime(client.info()):
            return "it cannot give a GPU to a container (no NVIDIA runtime; the NVIDIA Container Toolkit brings it)"
        wanted = [build.recipe(image, base_image) for image in images]
        missing = {recipe.base for recipe in wanted if build.built(client, recipe) is None}
        for base in sorted(missing):
            if reason := _why_unreachable(client, base):
                return reason
    except DockerException as error:
        return f"the Docker Engine failed ({str(error)[:200]})"
    finally:
        client.close()
    return None


def _why_unreachable(client: Any, base: str) -> str | None:
    from docker.errors import DockerException, ImageNotFound
    from requests.exceptions import RequestException

    try:
        client.images.get(base)
        return None
    except ImageNotFound:
        pass
    try:
        client.images.get_registry_data(base)
        return None
    except (DockerException, RequestException):
        variable = "DLBENCH_BASE_IMAGE"
        told = "" if os.environ.get(variable) else f", and neither --base-image nor {variable} names another"
        return f"the base image {base} is not here and its registry does not answer{told}"


def _has_gpu_runtime(info: dict[str, Any]) -> bool:
    devices = info.get("DiscoveredDevices") or ()
    return (
        "nvidia" in (info.get("Runtimes") or {})
        or any("nvidia" in str(device) for device in devices)
        or shutil.which("nvidia-container-runtime-hook") is not None
    )
