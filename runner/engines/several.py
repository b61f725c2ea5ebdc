"""One engine made of several: each image runs in the one that is for it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace

from bench import rules
from runner.catalog.images import Image
from runner.engines.base import Engine, Launch, ReadyImage, Running


def with_threads(launch: Launch, variables: Mapping[str, str]) -> Launch:
    """A cell with the number of threads that a user's or an image's programs compute with as an argument, where a variable says fewer than
    its slot has: an adapter sets its own by --threads.
    """
    said = [rules.whole(variables.get(name, "")) for name in rules.THREAD_VARIABLES]
    threads = min(filter(None, said), default=None)
    if "--threads" in launch.arguments or threads is None or threads >= launch.slot.threads:
        return launch
    return replace(launch, arguments=[*launch.arguments, "--threads", str(threads)])


class SeveralEngines(Engine):
    """Hands each question on to the engine of its image."""

    @abstractmethod
    def _engine(self, image: str) -> Engine:
        """The engine of an image, by the image's name."""

    @abstractmethod
    def _used(self) -> list[Engine]:
        """The engines, the run's own first, each once."""

    def name_of(self, image: str) -> str:
        return self._engine(image).name

    def answer(self) -> None:
        for engine in self._used():
            engine.answer()

    def lost_files(self, prepared: ReadyImage) -> str | None:
        return self._engine(prepared.image.name).lost_files(prepared)

    def unavailable(self) -> str | None:
        return self._used()[0].unavailable()

    def why_no_gpu(self) -> str | None:
        return self._used()[0].why_no_gpu()

    def notes(self, gpus: bool) -> tuple[str, ...]:
        return self._used()[0].notes(gpus)

    def unfit(self, image: Image) -> str | None:
        return self._engine(image.name).unfit(image)

    def unobtainable(self, image: Image) -> str | None:
        return self._engine(image.name).unobtainable(image)

    def parts(self, image: Image) -> Mapping[str, int]:
        return self._engine(image.name).parts(image)

    def cost(self, image: Image) -> int:
        return self._engine(image.name).cost(image)

    def disk_parts(self, image: Image) -> Mapping[str, int]:
        return self._engine(image.name).disk_parts(image)

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        return self._engine(image.name).prepare(image, say)

    def start(self, launch: Launch) -> Running:
        return self._engine(launch.prepared.image.name).start(launch)

    def sweep(self) -> int:
        return sum(engine.sweep() for engine in self._used())
