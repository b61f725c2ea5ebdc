"""An interpreter, and beside it the pinned images that it is held against: their cells are measured in one run, in the same blocks.

For each framework of the interpreter it is the catalog's image of that framework and kind of device with the nearest release, made as an
environment where one can be made here, and as a container where not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from bench import rules
from runner.catalog.images import Image, load_catalog
from runner.catalog.names import suggest
from runner.engines.base import Engine, EngineError, ReadyImage, Running, Slot
from runner.engines.process.host import HostEngine
from runner.engines.process.installed import KEPT
from runner.engines.process.process import start_process
from runner.engines.several import SeveralEngines, with_threads
from runner.errors import UserError

# In place of an image's name: the nearest release, and no image at all.
NEAREST, NONE = "nearest", "none"


def distance(release: str, other: str) -> tuple[int, ...]:
    """How far apart two releases are: the major numbers, then the minor ones, then the rest. One that is no version is the farthest."""
    try:
        one, two = (Version(each).release for each in (release, other))
    except InvalidVersion:
        return (2**31,)
    width = max(len(one), len(two))
    padded = [[*each, *[0] * (width - len(each))] for each in (one, two)]
    return tuple(abs(a - b) for a, b in zip(*padded, strict=True))


def nearest(installed: Image, catalog: Iterable[Image]) -> Image | None:
    """The image with the same framework and kind of device whose release is nearest; of two as near the newer one."""
    (framework,) = installed.frameworks
    offered = [one for one in catalog if framework in one.frameworks and one.accelerator == installed.accelerator]
    offered.sort(key=lambda one: Version(one.framework_version), reverse=True)
    # Keras has releases of its own, and an image is named by the release of the library below it.
    return min(offered, key=lambda one: distance(one.framework_version, installed.framework_version), default=None)


class BesideEngine(SeveralEngines):
    """The engine `host` with further images, each in the first engine that can run it."""

    name = HostEngine.name
    measures_interpreter = True

    def __init__(self, host: HostEngine, against: str, others: Sequence[Callable[[], Engine]]) -> None:
        self._host, self._against = host, against
        self._makers = others
        self._engines: dict[str, Engine] = {}

    def images(self, gpus: bool) -> dict[str, Image]:
        """The interpreter's own, and the pinned ones, which serve here only the frameworks that the interpreter has."""
        images: dict[str, Image] = dict(self._host.images(gpus))
        catalog = load_catalog()
        if self._against != NEAREST and self._against not in catalog:
            raise UserError(
                f"--against: {self._against!r:.200} is no image of the catalog{suggest(self._against, catalog)}; "
                f"`runner images list` shows them, {NEAREST} takes the nearest release and {NONE} none"
            )
        pinned: dict[str, Image] = {}
        for installed in list(images.values()):
            (framework,) = installed.frameworks
            if self._against == NEAREST:
                chosen = nearest(installed, catalog.values())
            else:
                named = catalog[self._against]
                chosen = named if framework in named.frameworks else None
            if chosen is not None:
                served = pinned.get(chosen.name, chosen.model_copy(update={"frameworks": ()})).frameworks
                pinned[chosen.name] = chosen.model_copy(update={"frameworks": (*served, framework)})
        if self._against != NEAREST and not pinned:
            raise UserError(
                f"--against {self._against}: it has none of the frameworks of this interpreter; name another"
            )
        for name, image in pinned.items():
            self._engines[name] = self._first_fit(image)
        return images | pinned

    def images_folder(self) -> Path | None:
        return next((engine.images_folder() for engine in self._used()[1:]), None)

    def start(
        self, prepared: ReadyImage, arguments: Sequence[str], slot: Slot, label: str, data: Path | None, cache: Path
    ) -> Running:
        if self._engine(prepared.image.name) is not self._host:
            return super().start(prepared, arguments, slot, label, data, cache)
        # The variables of the shell steer the user's own programs, so what is measured has them, too.
        variables = rules.steering(os.environ)
        arguments = with_threads(arguments, variables, slot)
        return start_process(prepared, arguments, slot, label, data, cache, keep=KEPT, extra=variables)

    def _engine(self, image: str) -> Engine:
        return self._engines.get(image, self._host)

    def _used(self) -> list[Engine]:
        """The engines, the interpreter's first, each once."""
        return list({id(engine): engine for engine in (self._host, *self._engines.values())}.values())

    def _first_fit(self, image: Image) -> Engine:
        """The first engine that can run the image; where none can, the first one, which says why."""
        found: list[Engine] = []
        for make in self._makers:
            with contextlib.suppress(EngineError):
                engine = make()
                if not engine.unavailable():
                    found.append(engine)
                    if not engine.unfit(image):
                        return engine
        return found[0]
