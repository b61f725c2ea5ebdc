"""Where cells run: in containers, in virtual environments, or in the interpreter that is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.engines.base import Engine, EngineError

if TYPE_CHECKING:
    from runner.catalog.images import Image
    from runner.engines.docker.engine import DockerEngine

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
    from runner.engines.docker.engine import DockerEngine
    from runner.engines.process.host import HostEngine
    from runner.engines.process.venv import VenvEngine

    if name == "auto":
        docker = DockerEngine(base_image)
        reason = _why_not(docker, images, gpus)
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


def _why_not(docker: DockerEngine, images: Sequence[Image], gpus: bool) -> str | None:
    """Why the Docker Engine is no use for these images; None when it is. A clause."""
    reasons = [docker.unavailable()]
    if reasons == [None]:
        reasons += [docker.why_no_gpu() if gpus else None, *(docker.unfit(image) for image in images)]
    return next(filter(None, reasons), None)
