"""The places where cells run: containers, virtual environments, or an existing interpreter."""

from __future__ import annotations

import functools
import pkgutil
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.catalog.images import Image
from runner.engines.base import Engine, EngineError, Settings
from runner.errors import UserError

if TYPE_CHECKING:
    from runner.engines.foreign import ForeignImages

# Name -> the class that keeps the protocol `Engine`. It is imported when it is chosen: an engine's libraries are slow to load.
ENGINES = {
    "docker": "runner.engines.docker.engine:DockerEngine",
    "podman": "runner.engines.podman:PodmanEngine",
    "apptainer": "runner.engines.apptainer:ApptainerEngine",
    "venv": "runner.engines.process.venv:VenvEngine",
    "host": "runner.engines.process.host:HostEngine",
}

# Those that run images of no catalog, in this order.
FOREIGN = ["docker", "podman"]

# The images that an engine would run.
Planned = Callable[[Engine], Sequence[Image]]

# `auto` takes the first of these that can run most of the images, and the last one whatever it can.
AUTOMATIC = ["docker", "podman", "venv"]


def choose(
    name: str,
    settings: Settings | None = None,
    planned: Planned = lambda _: (),
    gpus: bool = False,
) -> tuple[Engine, str]:
    """The engine of that name, and a sentence that says which it is and why. Raises EngineError when it cannot be used,
    and UserError where a setting is not for it.

    `planned` says which images an engine would run: `auto` asks an engine about these only. `gpus`: the machine has GPUs to use.
    """
    settings = settings or Settings()
    if settings.foreign:
        with_foreign = _with_foreign(name, settings)

        def own(engine: Engine) -> list[Image]:
            return [image for image in planned(with_foreign(engine)) if image.name not in settings.foreign]

        engine, why = choose(name, replace(settings, foreign=()), own, gpus)
        return with_foreign(engine), why
    if name == "auto":
        engine, why = _automatic(settings, planned, gpus)
    else:
        engine, why = _make(name, settings), "as --engine says"
    if settings.against and name == "host":
        engine = _beside(engine, settings)
    if settings.python and not engine.measures_interpreter:
        raise UserError(f"--python: engine {name} does not measure an interpreter; say --engine host as well")
    if settings.python and shutil.which(settings.python) is None:
        raise UserError(f"--python: there is no program {settings.python}; name an interpreter that has the frameworks")
    if settings.images_from and name != "auto" and not engine.loads_images:
        raise UserError(f"--images-from: engine {name} loads no images; leave it out, or say --engine docker")
    if name != "auto" and (reason := engine.unavailable()):
        raise EngineError(f"the engine {name} cannot be used: {reason}")
    return engine, f"engine {engine.name}: {why}"


def _make(name: str, settings: Settings) -> Engine:
    """The engine of that name, as the settings say. Raises EngineError, and UserError for another name."""
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}; there are {', '.join(['auto', *ENGINES])}")
    try:
        engine: Engine = pkgutil.resolve_name(ENGINES[name])(settings)
    except ImportError as error:
        raise EngineError(f"the engine {name} cannot be used: {error}; install what it needs") from None
    return engine


def foreign_images(name: str, settings: Settings) -> ForeignImages:
    """The foreign images of the settings, in the containers of the engine of that name, or where it has none of the first that has."""
    # Only this needs them.
    from runner.engines.foreign import ForeignImages

    names = [name] if name in FOREIGN else FOREIGN
    makers = [functools.partial(_make, each, settings) for each in names]
    return ForeignImages(settings.foreign, makers, functools.partial(_make, "apptainer", settings))


def _with_foreign(name: str, settings: Settings) -> Callable[[Engine], Engine]:
    """Adds the foreign images of the settings to an engine of that name."""
    # Only this needs it.
    from runner.engines.foreign import ForeignEngine

    images = foreign_images(name, settings)
    return lambda engine: ForeignEngine(engine, images)


def _beside(engine: Engine, settings: Settings) -> Engine:
    """The engine `host` with the pinned images that its interpreter is held against; another engine of that name as it is."""
    # Only this needs them.
    from runner.engines.process.host import HostEngine
    from runner.engines.process.interpreters import BesideEngine

    if not isinstance(engine, HostEngine) or settings.against is None:
        return engine
    # An environment runs as the interpreter does, without a container around it.
    makers = [functools.partial(_make, other, settings) for other in ("venv", *AUTOMATIC[:-1])]
    return BesideEngine(engine, settings.against, makers)


def _automatic(settings: Settings, planned: Planned, gpus: bool) -> tuple[Engine, str]:
    """The first engine that can run most of the images, and why it is that one."""
    *preferred, last = AUTOMATIC
    reasons: list[str] = []
    for name in preferred:
        try:
            engine = _make(name, settings)
            reason = engine.unavailable() or (engine.why_no_gpu() if gpus else None)
            images = [] if reason else planned(engine)
            unfit = [why for image in images if (why := engine.unfit(image))]
        except EngineError as error:
            reason = str(error)
        # An old base image that is missing is no reason to run all others without a container.
        if reason is None and 2 * len(unfit) < max(1, len(images)):
            of = f"{len(images) - len(unfit)} of {len(images)}" if unfit else "the"
            return engine, "; ".join([f"it answers here and can make {of} images", *reasons])
        reason = reason or unfit[0]
        reasons.append(f"{name} is not used: {reason}")
    return _make(last, settings), "; ".join(reasons) or "as --engine says"
