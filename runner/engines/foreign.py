"""Images of no catalog: what is inside, and the engine that runs them beside a run's own."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from bench import rules
from runner.catalog.addresses import ForeignImage
from runner.catalog.images import Image, Precision, load_catalog
from runner.engines import cell_cache, sif
from runner.engines.base import Engine, Launch, ReadyImage, Running, SeveralEngines, Slot, with_threads
from runner.engines.docker import foreign_image
from runner.engines.docker.engine import DockerEngine
from runner.engines.probe import Printed, printed
from runner.engines.process.host import not_on_cpu_of, precisions_of
from runner.errors import EngineError, ExitCode, code_of
from runner.known_messages import hint
from runner.paths import PROJECT
from runner.results.on_disk.image_names import SIF, is_address
from runner.results.validate import Strict
from runner.text import in_a_line, last_line

# Looks what a foreign image holds: its Python, and the frameworks that the bench can import there.
#
# It runs in a container with the limits of a cell's. What it prints is a stranger's: bounded in time and size, and validated.

# The interpreters that are tried, in this order; a bare name is looked up on the image's PATH.
CANDIDATES = ("python", "python3", "/opt/conda/bin/python", "/usr/local/bin/python3", "/usr/bin/python3")

# The oldest Python that the bench's syntax is for.
OLDEST = (3, 6)

# Importing every framework from a cold disk takes minutes.
SECONDS = 300.0
MOST_BYTES = 1 << 20
MEMORY_BYTES = 8 << 30

# The exit codes of a container whose program is not there, or is none.
_NO_PROGRAM = (126, 127)
# Podman's init process says so, and ends with 1.
_NO_PROGRAM_OF_PODMAN = "failed to exec pid1"

# In the syntax that every Python has, so that an old one can say how old it is.
_QUESTION = """
import json, sys
try:
    import numpy
    found = numpy.__version__
except Exception:
    found = ""
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "place": sys.executable + " " + sys.prefix, "numpy": found}))
"""


def _is_version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError("it is no version") from None
    return text


_Word = Annotated[str, Field(max_length=100, pattern=r"^[\x20-\x7e]*$")]
_Release = Annotated[str, Field(max_length=60), AfterValidator(_is_version)]


class _Python(Strict):
    version: Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3}$")]
    place: Annotated[str, Field(max_length=4096)]
    numpy: Annotated[str, Field(max_length=60)]

    @property
    def release(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))[:2]


class FoundFramework(Strict):
    """A framework of the image, as the bench lists it."""

    framework: _Word
    version: _Release
    device_kinds: Annotated[list[Literal["cpu", "cuda"]], Field(max_length=2)]
    versions: Annotated[dict[_Word, _Word], Field(max_length=30)]


class _Lacking(Strict):
    """A framework of the image that lacks a package beside its own."""

    framework: _Word
    lacks: _Word


@dataclass(frozen=True)
class Interior:
    """The Python of an image that has frameworks, and these."""

    interpreter: str
    python: str
    numpy: str
    frameworks: tuple[FoundFramework, ...]


# Starts a program of the image with arguments, and reads what it prints.
Ask = Callable[[str, Sequence[str]], Printed]


def looked_inside(ask: Ask) -> Interior:
    """The content of the image, in the first of its interpreters that has a framework. Raises EngineError, with what to do."""
    reasons: list[str] = []
    for interpreter, python in _interpreters(ask):
        if why := _unusable(interpreter, python):
            reasons.append(why)
            continue
        frameworks, lacking = _frameworks(ask, interpreter)
        if frameworks:
            return Interior(interpreter, python.version, python.numpy, frameworks)
        none = f"its {interpreter} imports none of the bench's frameworks ({', '.join(rules.framework_names())}): install one in it"
        lacks = [f"its {interpreter} has {one.framework} and lacks {one.lacks}: install that in it" for one in lacking]
        reasons += lacks or [none]
    raise EngineError("; ".join(reasons) or "it has no Python: install one in it, or name an image that has one")


def _unusable(interpreter: str, python: _Python) -> str | None:
    """Why no framework can be asked of this interpreter; None where one can."""
    if python.release < OLDEST:
        return f"its {interpreter} is Python {python.version}, and the bench needs 3.6 or newer: use a newer image"
    add = f"add `RUN {interpreter} -m pip install numpy` to its Dockerfile"
    return None if python.numpy else f"its {interpreter} has no NumPy, which every cell needs: {add}"


def _interpreters(ask: Ask) -> Iterator[tuple[str, _Python]]:
    """The image's interpreters, each once."""
    places = set()
    for candidate in CANDIDATES:
        printed = ask(candidate, ("-c", _QUESTION))
        if printed.ended.code in _NO_PROGRAM or _NO_PROGRAM_OF_PODMAN in printed.ended.log_tail:
            continue
        python = _read(printed, candidate, TypeAdapter(_Python))
        if python.place not in places:
            places.add(python.place)
            yield candidate, python


def _frameworks(ask: Ask, interpreter: str) -> tuple[tuple[FoundFramework, ...], list[_Lacking]]:
    """The frameworks that it imports, and those that lack a package beside their own."""
    printed = ask(interpreter, ("-m", "bench", "frameworks"))
    entries = _read(printed, interpreter, TypeAdapter(Annotated[list[FoundFramework | _Lacking], Field(max_length=60)]))
    known = {entry.framework: entry for entry in entries if entry.framework in set(rules.framework_names())}.values()
    lacking = [entry for entry in known if isinstance(entry, _Lacking)]
    return tuple(entry for entry in known if isinstance(entry, FoundFramework)), lacking


def _read(printed: Printed, interpreter: str, kind: TypeAdapter[Any]) -> Any:
    """The answer of an interpreter. Raises EngineError."""
    failed = f"its {interpreter} did not say what it has"
    if printed.late:
        raise EngineError(f"{failed} within {SECONDS:.0f} s: try its Python by hand, or leave the image out")
    if printed.too_long:
        raise EngineError(
            f"{failed}: it printed more than {MOST_BYTES >> 20} MiB; silence what prints when Python starts"
        )
    try:
        return kind.validate_python(json.loads(printed.output))
    except (ValueError, RecursionError) as error:
        said = last_line(printed.ended.log_tail) if printed.ended.code else ""
        why = said or ("another answer" if isinstance(error, ValidationError) else "no JSON")
        raise EngineError(
            f"{failed} (exit {printed.ended.code}): {in_a_line(why, 300)}; try its Python by hand"
        ) from None


# Images of no catalog beside those of a run's own engine: each is looked into once, and runs in a container.
#
# `--images 'torch-*,docker:REPOSITORY:TAG'` names both kinds. An address that cannot be used becomes an image with the reason, and the
# others go on.

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
            pinned = sif.pin(image.name)
        else:
            pinned = foreign_image.pin(foreign_image.obtain(self.engine.client, image.name, _say), image.name)
        if pinned != image.pinned:
            raise EngineError(f"{image.name} is another image than when it was looked into; start the run again")
        return _ready(image, image.interpreter, "-m", "bench")

    def _look(self, address: str) -> Looked:
        if address.startswith(SIF):
            pinned, size = sif.pin(address), sif.path_of(address).stat().st_size
            inside = looked_inside(functools.partial(self._ask, _bare(address, pinned, {})))
            return Looked(address, pinned, size, {}, inside)
        found = foreign_image.obtain(self.engine.client, address, _say)
        if reason := foreign_image.unfit(found, dict(self.engine.info)):
            raise EngineError(reason)
        pinned, variables = foreign_image.pin(found, address), foreign_image.variables(found)
        bare = _bare(address, pinned, variables)
        inside = looked_inside(functools.partial(self._ask, bare))
        return Looked(address, pinned, int(found.attrs.get("Size") or 0), variables, inside)

    def _ask(self, image: ForeignImage, program: str, arguments: Sequence[str]) -> Printed:
        """Run a program of the image with the limits of a cell."""
        slot = Slot("cpu", (), (), MEMORY_BYTES, seconds=None)
        engine = self.engine_of(image.name)
        cache = cell_cache.folder_of(engine.name, image.name, image.pinned)
        running = engine.start(Launch(_ready(image, program), arguments, slot, _LABEL, cache))
        return printed(running, SECONDS, MOST_BYTES)

    def _image(self, address: str, gpus: bool) -> ForeignImage:
        try:
            looked = self.looked(address)
        except EngineError as error:
            advice = hint(None, str(error))
            refusal = f"{error}; {advice}" if advice else str(error)
            return _bare(address, "", {}, refusal=refusal, is_bad_file=code_of(error) is ExitCode.USAGE)
        found = looked.interior.frameworks
        on_gpu = [one for one in found if gpus and "cuda" in one.device_kinds]
        return _bare(address, looked.pinned, looked.variables, **_of_frameworks(on_gpu or found, looked, bool(on_gpu)))


def _ready(image: ForeignImage, *command: str) -> ReadyImage:
    """An image with a program of it. Apptainer's command begins with the file."""
    file = (str(sif.path_of(image.name)),) if image.name.startswith(SIF) else ()
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

    def disk_parts(self, image: Image) -> Mapping[str, int]:
        return {} if isinstance(image, ForeignImage) else self._own.disk_parts(image)

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        return self._foreign.prepare(image) if isinstance(image, ForeignImage) else self._own.prepare(image, say)

    def start(self, launch: Launch) -> Running:
        source = launch.prepared.source
        return super().start(with_threads(launch, source.steering) if isinstance(source, ForeignImage) else launch)

    def _engine(self, image: str) -> Engine:
        return self._foreign.engine_of(image) if is_address(image) else self._own

    def _used(self) -> list[Engine]:
        return [self._own, *self._foreign.engines()]


def _say(line: str) -> None:
    print(f"     {line}", file=sys.stderr, flush=True)
