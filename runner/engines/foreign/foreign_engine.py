"""Images of no catalog beside those of a run's own engine: each is looked into once, and runs in a container.

`--images 'torch-*,docker:REPOSITORY:TAG'` names both kinds. An address that cannot be used becomes an image with the reason, and the
others go on.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, cast

from bench import rules
from runner.catalog.addresses import ForeignImage
from runner.catalog.images import Image, Precision, load_catalog
from runner.engines import cell_cache
from runner.engines.apptainer import foreign_sif
from runner.engines.base import Engine, ReadyImage, Running, Slot
from runner.engines.docker import foreign_image
from runner.engines.docker.engine import DockerEngine
from runner.engines.foreign import interior
from runner.engines.foreign.interior import FoundFramework, Interior
from runner.engines.probe import Printed, printed
from runner.engines.process.host import not_on_cpu_of, precisions_of
from runner.engines.several import SeveralEngines, with_threads
from runner.errors import EngineError, ExitCode, code_of
from runner.paths import PROJECT
from runner.results.on_disk.image_names import SIF, is_address

# The containers of the look carry it in the place of a run.
_LABEL = "look"


@dataclass(frozen=True)
class Looked:
    """The facts of a foreign image before anything is measured."""

    address: str
    # a repository with a digest, or an image id
    pinned: str
    bytes: int
    variables: Mapping[str, str]
    interior: Interior


class ForeignImages:
    """The foreign images of a command, and the container engine that they run in. Each is fetched and looked into once."""

    def __init__(
        self, addresses: Sequence[str], makers: Sequence[Callable[[], Engine]], apptainer: Callable[[], Engine]
    ) -> None:
        self._addresses, self._makers, self._make_apptainer = addresses, makers, apptainer
        self._looked: dict[str, Looked | EngineError] = {}

    @functools.cached_property
    def engine(self) -> DockerEngine:
        """The first container engine that answers. Raises EngineError."""
        reasons = []
        for make in self._makers:
            engine = cast(DockerEngine, make())
            if not (reason := engine.unavailable()):
                return engine
            reasons.append(f"{engine.name}: {reason}")
        raise EngineError(f"a foreign image runs in a container, and no engine can be used ({'; '.join(reasons)})")

    @functools.cached_property
    def apptainer(self) -> Engine:
        """The engine of SIFs. Raises EngineError."""
        engine = self._make_apptainer()
        if reason := engine.unavailable():
            raise EngineError(f"a SIF runs in Apptainer, and it cannot be used: {reason}")
        return engine

    def engine_of(self, address: str) -> Engine:
        """The engine that runs an image. Raises EngineError."""
        return self.apptainer if address.startswith(SIF) else self.engine

    def engines(self) -> list[Engine]:
        """The engines that answer, of those that these images need."""
        found: list[Engine] = []
        for address in self._addresses:
            with contextlib.suppress(EngineError):
                found.append(self.engine_of(address))
        return list({id(engine): engine for engine in found}.values())

    def looked(self, address: str) -> Looked:
        """The facts of one image. Raises EngineError, each time the same."""
        if address not in self._looked:
            try:
                self._looked[address] = self._look(address)
            except EngineError as error:
                self._looked[address] = error
        if isinstance(found := self._looked[address], EngineError):
            raise found
        return found

    def images(self, gpus: bool) -> dict[str, Image]:
        """The images by name. One that cannot be used has no framework, and says why."""
        return {address: self._image(address, gpus) for address in self._addresses}

    def notes(self, gpus: bool) -> tuple[str, ...]:
        """A sentence for each image some of whose frameworks are skipped: it is for GPUs, and their build there is not."""
        notes = []
        for image in self.images(gpus).values():
            found = self.looked(image.name).interior.frameworks if image.accelerator == "cuda" else ()
            if without := [one.framework for one in found if one.framework not in image.frameworks]:
                notes.append(f"{image.name}: {', '.join(without)} skipped, since its build there has no CUDA")
        return tuple(notes)

    def prepare(self, image: ForeignImage) -> ReadyImage:
        """Nothing is made. Raises EngineError where the image was removed meanwhile, and cannot be had again."""
        if image.name.startswith(SIF):
            pinned = foreign_sif.pin(image.name)
        else:
            pinned = foreign_image.pin(foreign_image.obtain(self.engine.client, image.name, _say), image.name)
        if pinned != image.pinned:
            raise EngineError(f"{image.name} is another image than when it was looked into; start the run again")
        return _ready(image, image.interpreter, "-m", "bench")

    def _look(self, address: str) -> Looked:
        if address.startswith(SIF):
            pinned, size = foreign_sif.pin(address), foreign_sif.path_of(address).stat().st_size
            inside = interior.interior(functools.partial(self._ask, _bare(address, pinned, {})))
            return Looked(address, pinned, size, {}, inside)
        found = foreign_image.obtain(self.engine.client, address, _say)
        if reason := foreign_image.unfit(found, dict(self.engine.info)):
            raise EngineError(reason)
        pinned, variables = foreign_image.pin(found, address), foreign_image.variables(found)
        bare = _bare(address, pinned, variables)
        inside = interior.interior(functools.partial(self._ask, bare))
        return Looked(address, pinned, int(found.attrs.get("Size") or 0), variables, inside)

    def _ask(self, image: ForeignImage, program: str, arguments: Sequence[str]) -> Printed:
        """Run a program of the image with the limits of a cell."""
        slot = Slot("cpu", (), (), interior.MEMORY_BYTES, seconds=None)
        engine = self.engine_of(image.name)
        cache = cell_cache.folder_of(engine.name, image.name, image.pinned)
        running = engine.start(_ready(image, program), arguments, slot, _LABEL, None, cache)
        return printed(running, interior.SECONDS, interior.MOST_BYTES)

    def _image(self, address: str, gpus: bool) -> ForeignImage:
        try:
            looked = self.looked(address)
        except EngineError as error:
            return _bare(address, "", {}, refusal=str(error), is_bad_file=code_of(error) is ExitCode.USAGE)
        found = looked.interior.frameworks
        on_gpu = [one for one in found if gpus and "cuda" in one.device_kinds]
        return _bare(address, looked.pinned, looked.variables, **_of_frameworks(on_gpu or found, looked, bool(on_gpu)))


def _ready(image: ForeignImage, *command: str) -> ReadyImage:
    """An image with a program of it. Apptainer's command begins with the file."""
    file = (str(foreign_sif.path_of(image.name)),) if image.name.startswith(SIF) else ()
    return ReadyImage(image, image.pinned, (*file, *command))


def _of_frameworks(found: Sequence[FoundFramework], looked: Looked, on_gpu: bool) -> dict[str, Any]:
    """The fields of an image that follow from its frameworks, which are planned for one kind of device."""
    catalog = load_catalog().values()
    accelerator = "cuda" if on_gpu else "cpu"
    precisions: dict[Precision, None] = {}
    not_on_cpu: dict[str, str] = {}
    for one in found:
        precisions |= dict.fromkeys(precisions_of(one.framework, one.version, accelerator, catalog))
        not_on_cpu |= not_on_cpu_of(one.framework, one.version, catalog)
    versions = {name: version for one in found for name, version in one.versions.items()}
    return {
        "frameworks": tuple(one.framework for one in found),
        "framework_version": found[0].version,
        "releases": {one.framework: one.version for one in found},
        "python": ".".join(looked.interior.python.split(".")[:2]),
        "accelerator": accelerator,
        "cuda": versions.get("cuda") if on_gpu else None,
        "cudnn": versions.get("cudnn") if on_gpu else None,
        "precisions": tuple(precisions),
        "not_on_cpu": not_on_cpu,
        "interpreter": looked.interior.interpreter,
    }


def _bare(address: str, pinned: str, variables: Mapping[str, str], **more: Any) -> ForeignImage:
    """A foreign image as far as it is known."""
    fields: dict[str, Any] = {
        "name": address,
        "folder": PROJECT,
        "frameworks": (),
        "framework_version": "0",
        "python": "3",
        "accelerator": "cpu",
        "base": "foreign",
        "precisions": ("fp32",),
        "locked": date.today(),
        "download_gb": 0.0,
        "pinned": pinned,
        "releases": {},
        "python_path": variables.get("PYTHONPATH", ""),
        "steering": rules.steering(variables),
    }
    return ForeignImage.model_construct(**fields | more)


class ForeignEngine(SeveralEngines):
    """A run's own engine, and beside it the container engine of the foreign images."""

    def __init__(self, own: Engine, foreign: ForeignImages) -> None:
        self._own, self._foreign = own, foreign
        self.name = own.name
        self.measures_interpreter, self.loads_images = own.measures_interpreter, own.loads_images

    def images(self, gpus: bool) -> Mapping[str, Image]:
        return {**self._own.images(gpus), **self._foreign.images(gpus)}

    def notes(self, gpus: bool) -> tuple[str, ...]:
        return (*self._own.notes(gpus), *self._foreign.notes(gpus))

    def images_folder(self) -> Path | None:
        return self._own.images_folder()

    def unfit(self, image: Image) -> str | None:
        if not isinstance(image, ForeignImage):
            return self._own.unfit(image)
        if image.refusal or image.accelerator == "cpu":
            return image.refusal
        return self._foreign.engine_of(image.name).why_no_gpu()

    def unobtainable(self, image: Image) -> str | None:
        return None if isinstance(image, ForeignImage) else self._own.unobtainable(image)

    def parts(self, image: Image) -> Mapping[str, int]:
        return {} if isinstance(image, ForeignImage) else self._own.parts(image)

    def cost(self, image: Image) -> int:
        return 0 if isinstance(image, ForeignImage) else self._own.cost(image)

    def disk_parts(self, image: Image) -> Mapping[str, int]:
        return {} if isinstance(image, ForeignImage) else self._own.disk_parts(image)

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        return self._foreign.prepare(image) if isinstance(image, ForeignImage) else self._own.prepare(image, say)

    def start(
        self, prepared: ReadyImage, arguments: Sequence[str], slot: Slot, label: str, data: Path | None, cache: Path
    ) -> Running:
        if isinstance(prepared.source, ForeignImage):
            arguments = with_threads(arguments, prepared.source.steering, slot)
        return super().start(prepared, arguments, slot, label, data, cache)

    def _engine(self, image: str) -> Engine:
        return self._foreign.engine_of(image) if is_address(image) else self._own

    def _used(self) -> list[Engine]:
        return [self._own, *self._foreign.engines()]


def _say(line: str) -> None:
    print(f"     {line}", file=sys.stderr, flush=True)
