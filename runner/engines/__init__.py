"""Where cells run: in containers, in virtual environments, or in an interpreter that is already there."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence

from runner.catalog.images import select_images
from runner.engines.base import Engine, EngineError, Settings

# Name -> the class that keeps the protocol `Engine`. It is imported when it is chosen: an engine's libraries are slow to load.
ENGINES = {
    "docker": "runner.engines.docker.engine:DockerEngine",
    "venv": "runner.engines.process.venv:VenvEngine",
    "host": "runner.engines.process.host:HostEngine",
}

# `auto` takes the first of these that can run the images, and the last one whatever it can.
AUTOMATIC = ["docker", "venv"]


def choose(
    name: str,
    settings: Settings | None = None,
    patterns: Sequence[str] = (),
    gpus: bool = False,
    frameworks: Sequence[str] = (),
) -> tuple[Engine, str]:
    """The engine of that name, and a sentence that says which it is and why. Raises EngineError when it cannot be used.

    `patterns` name the images that are to run, by default all of them; `frameworks` leaves those that serve one of these. `gpus`: the
    machine has GPUs to use.
    """
    settings = settings or Settings()
    if name == "auto":
        engine, why = _automatic(settings, patterns, gpus, frameworks)
    else:
        engine, why = _make(name, settings), "as asked"
    if settings.python and not engine.measures_interpreter:
        raise EngineError(f"--python: engine {name} does not measure an interpreter; say --engine host as well")
    if name != "auto" and (reason := engine.unavailable()):
        raise EngineError(f"the engine {name} cannot be used: {reason}")
    return engine, f"engine {engine.name}: {why}"


def _make(name: str, settings: Settings) -> Engine:
    """The engine of that name, as the settings say. Raises EngineError."""
    if name not in ENGINES:
        raise EngineError(f"there is no engine {name!r}; there are {', '.join(['auto', *ENGINES])}")
    try:
        engine: Engine = pkgutil.resolve_name(ENGINES[name])(settings)
    except ImportError as error:
        raise EngineError(f"the engine {name} cannot be used: {error}; install what it needs") from None
    return engine


def _automatic(
    settings: Settings, patterns: Sequence[str], gpus: bool, frameworks: Sequence[str]
) -> tuple[Engine, str]:
    """The first engine that can run the images, and why it is that one."""
    *preferred, last = AUTOMATIC
    reasons = []
    for name in preferred:
        try:
            engine = _make(name, settings)
            reason = _why_not(engine, patterns, gpus, frameworks)
        except EngineError as error:
            reason = str(error)
        if reason is None:
            return engine, "it answers here and can make the images"
        reasons.append(f"{name} is out, because {reason}")
    return _make(last, settings), "; ".join(reasons) or "as asked"


def _why_not(engine: Engine, patterns: Sequence[str], gpus: bool, frameworks: Sequence[str]) -> str | None:
    """Why an engine is of no use for these images; None when it can run them. A clause."""
    if reason := engine.unavailable():
        return reason
    if gpus and (reason := engine.why_no_gpu()):
        return reason
    images = select_images(engine.images(gpus), patterns or ["*"])
    served = (image for image in images if not frameworks or not set(frameworks).isdisjoint(image.frameworks))
    likely = (image for image in served if (image.accelerator == "cuda") == gpus)
    return next((reason for image in likely if (reason := engine.unfit(image))), None)
