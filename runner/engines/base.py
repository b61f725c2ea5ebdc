"""The interface of an engine: it starts a cell on given devices, passes on its output, stops it at once, and leaves nothing behind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench import rules
from runner.catalog import guarantees
from runner.errors import EngineError as EngineError
from runner.errors import EngineGoneError as EngineGoneError
from runner.results.on_disk.isolation import Isolation

if TYPE_CHECKING:
    from runner.catalog.images import Image

# The part of a machine that a cell gets, and how its process ended.

# The most bytes to keep of a cell's standard error, from its end.
LOG_TAIL_BYTES = 16 * 1024

# The driver keeps what it compiled from PTX up to this size: the most that it takes (CUDA's programming guide). At its own limit of
# 256 MiB or 1 GiB it would throw out one framework's kernels of an image for another's, and compile them again.
JIT_CACHE_BYTES = 4 << 30
# The folder of this cache, below the cell's.
JIT_CACHE_FOLDER = "cuda"


@dataclass(frozen=True)
class Slot:
    """The part of the machine that one running cell has for itself."""

    device_kind: str  # cpu | cuda
    device_uuids: tuple[str, ...]  # the GPUs; empty for the CPU
    cpus: tuple[int, ...]  # numbers of the logical CPUs
    memory_bytes: int | None  # host memory that the cell may use; None: no limit by the runner
    memory_nodes: tuple[int, ...] = ()  # the NUMA nodes that its memory comes from; (): any
    # After so long the cell ends by itself, though nobody is left who watches it. None: never.
    seconds: int | None = None
    # CPU threads where a quota of time allows fewer than there are CPUs. None: one for each CPU.
    quota_threads: int | None = None

    @property
    def threads(self) -> int:
        """CPU threads of the cell; 0: nobody says."""
        return min(len(self.cpus), self.quota_threads or len(self.cpus))


@dataclass(frozen=True)
class Exit:
    """How a cell's process ended."""

    code: int  # as a shell tells it: 128 + signal for a killed process
    out_of_memory: bool  # the kernel or the engine ended it for its memory
    log_tail: str  # the end of its standard error, at most LOG_TAIL_BYTES
    # Whatever of the cell could not be ended, and what becomes of it. None: nothing of it is left.
    left: str | None = None
    # The limits that its engine says that it had; None where no engine limits it.
    isolation: Isolation | None = None


# Bytes on the disk for each byte of wheels that is fetched, without the base. Measured on six CPU images as they were
# built, Debian packages among it: 1.6 to 6.4, in the median 4.5.
DISK_BYTES_A_BYTE = 4.5

# The same of a GPU image, whose wheels are NVIDIA's libraries for the most part. Measured on the whole environments of PyTorch 2.4, 2.6 and
# 2.7: 1.75 to 1.78. Beside them the wheels themselves lie on the disk while they are unpacked.
DISK_BYTES_A_BYTE_FOR_GPUS = 2.8


@dataclass(frozen=True)
class ReadyImage:
    """An image that is ready to run: built, or installed."""

    # None: an interpreter of a kit, which is of no catalog
    source: Image | None
    # docker: the image's id or registry digest; venv and host: sha256 of the lock and the interpreter
    digest: str
    # argv up to and with `-m bench`
    command: tuple[str, ...]

    @property
    def image(self) -> Image:
        """The image, for an engine that runs nothing but images."""
        assert self.source is not None, "an interpreter of a kit is of no catalog"
        return self.source


@dataclass(frozen=True)
class Launch:
    """A cell that an engine starts: `python -m bench <arguments>` of an image, on its part of the machine."""

    prepared: ReadyImage
    arguments: Sequence[str]
    slot: Slot
    # marks the process or container with the run that it belongs to
    label: str
    # a folder that the cell may write and that outlives it
    cache: Path
    # the user's folder of data sets, which the cell may only read; the engine adds `--data` with its name as the cell sees it
    data: Path | None = None


class Running(Protocol):
    """A started cell."""

    def events(self) -> Iterator[bytes]:
        """Yield what the cell prints on standard output, in chunks of 1 MiB at most, until it ends."""
        ...

    def stop(self) -> None:
        """Have the cell and all it started killed. Returns at once, and may be called again and by any thread: also the reading one.

        A cell that cannot be killed ends for its reader all the same, and its Exit says what is left.
        """
        ...

    def dump(self) -> None:
        """Make the cell write its stack to standard error and abort: SIGABRT, which Python's faulthandler handles."""
        ...

    def pid(self) -> int | None:
        """The host's number of the cell's first process; None when nobody knows it (any more)."""
        ...

    def scratch(self) -> Path | None:
        """The folder of this machine's disk that the cell may write and that ends with it; None where it has none."""
        ...

    def wait(self) -> Exit:
        """Wait for the end, remove what the cell left, and say how it ended."""
        ...


@dataclass(frozen=True)
class Settings:
    """The user's settings of an engine; each engine takes those that concern it."""

    # stands in for the catalog's base images where there is no registry
    base_image: str | None = None
    # the interpreter to measure
    python: Path | None = None
    # a folder of exported images
    images_from: Path | None = None
    # whether an image that can be had from nowhere is built
    may_build: bool = True
    # the image that an interpreter is measured beside: a name, or "nearest"
    against: str | None = None
    # the addresses of images of no catalog
    foreign: tuple[str, ...] = ()


class Engine(Protocol):
    """The base of the engines. A class that derives from this one inherits its answers."""

    # the key in runner.engines.ENGINES
    name: str
    # whether it measures an interpreter that the user names with --python
    measures_interpreter: bool = False
    # whether it takes images from the folder of --images-from
    loads_images: bool = False

    def name_of(self, image: str) -> str:
        """The name of the engine that runs this image: one engine may hold several."""
        return self.name

    def unavailable(self) -> str | None:
        """Why this engine cannot be used here; None when it can."""
        return None

    def answer(self) -> None:
        """Return when the engine has given a sign of life. Raises EngineError. Cells that are processes need no engine."""
        return

    def why_no_gpu(self) -> str | None:
        """Why this engine cannot give a GPU to a cell; None when it seems to. Only a started cell proves it."""
        return None

    def guarantees(self) -> str:
        """The row of the table of engines and their guarantees that fits here, as a sentence: of an engine without containers."""
        return guarantees.sentence("venv", None, None)

    def images(self, gpus: bool) -> Mapping[str, Image]:
        """The images that this engine may run, by name: those of the catalog. `gpus`: the machine has GPUs to use."""
        # A catalog needs pydantic, which the machine that a kit measures may lack.
        from runner.catalog.images import load_catalog

        return load_catalog()

    def notes(self, gpus: bool) -> tuple[str, ...]:
        """Sentences that a user must read before these images run. `gpus`: the machine has GPUs to use."""
        return ()

    def lost_files(self, prepared: ReadyImage) -> str | None:
        """A clause on files that a prepared image had and has not any more, after which it is prepared anew; None where it is whole, or
        nobody can take files from it."""
        return None

    def images_folder(self) -> Path | None:
        """The folder whose disk holds the images; None when there is none, or the engine does not say."""
        return None

    def unfit(self, image: Image) -> str | None:
        """Why this engine cannot run this image; None when it can."""
        return None

    def unobtainable(self, image: Image) -> str | None:
        """Why the image is not here, and is not to be made here either; None when it is, or can be had."""
        return None

    def parts(self, image: Image) -> Mapping[str, int]:
        """About how many bytes must be fetched or built before the image can run, by the names of its parts; none when it is ready. A part
        that several images share has one name, and is fetched once for all of them."""
        return {}

    def disk_parts(self, image: Image) -> Mapping[str, int]:
        """The same parts, with the bytes that each will take on the disk."""
        each = DISK_BYTES_A_BYTE_FOR_GPUS if image.accelerator == "cuda" else DISK_BYTES_A_BYTE
        return {part: round(size * each) for part, size in self.parts(image).items()}

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        """Make the image ready; `say` gets short lines of progress. Raises EngineError."""
        ...

    def start(self, launch: Launch) -> Running:
        """Start a cell. Raises EngineError, and EngineGoneError where the engine does not answer."""
        ...

    def sweep(self) -> int:
        """Remove what killed runners of this machine left; return how many cells that were."""
        ...


# One engine made of several: each image runs in the one that is for it.


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

    def disk_parts(self, image: Image) -> Mapping[str, int]:
        return self._engine(image.name).disk_parts(image)

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        return self._engine(image.name).prepare(image, say)

    def start(self, launch: Launch) -> Running:
        return self._engine(launch.prepared.image.name).start(launch)

    def sweep(self) -> int:
        return sum(engine.sweep() for engine in self._used())
