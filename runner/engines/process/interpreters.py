"""Finds an interpreter of a given Python version on this machine: PATH, the running one, pyenv's, uv's. Fetches none."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from bench import rules
from runner.catalog.architectures import emulated
from runner.catalog.images import Image, load_catalog
from runner.catalog.names import suggest
from runner.engines.base import Engine, EngineError, Launch, Running, SeveralEngines, with_threads
from runner.engines.process.host import HostEngine
from runner.engines.process.installed import KEPT
from runner.engines.process.process import start_process
from runner.errors import UserError
from runner.paths import find_program, home

# An interpreter, and beside it the pinned images that it is held against: their cells are measured in one run, in the same blocks.
#
# For each framework of the interpreter it is the catalog's image of that framework and kind of device with the nearest release, made as
# an environment where one can be made here, and as a container where not.

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

    def start(self, launch: Launch) -> Running:
        if self._engine(launch.prepared.image.name) is not self._host:
            return super().start(launch)
        # The variables of the shell steer the user's own programs, so what is measured has them, too.
        variables = rules.steering(os.environ)
        return start_process(with_threads(launch, variables), keep=KEPT, extra=variables)

    def _engine(self, image: str) -> Engine:
        return self._engines.get(image, self._host)

    def _used(self) -> list[Engine]:
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


# Each candidate runs this, in syntax that Python 3.6 has. A virtual environment leads to the interpreter that it was made from.
# It imports little: a plan asks a dozen interpreters.
_QUESTION = """
import importlib.util, json, os, sys
base = getattr(sys, "_base_executable", None) or sys.executable
if sys.prefix != sys.base_prefix and not hasattr(sys, "_base_executable"):
    base = os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2])
complete = all(map(importlib.util.find_spec, ["ensurepip", "venv"]))
print(json.dumps({"path": os.path.realpath(base), "version": sys.version.split()[0], "bits": 64 if sys.maxsize > 2**32 else 32,
    "implementation": sys.implementation.name, "machine": os.uname()[4], "complete": complete}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that virtual environments can be made from."""

    path: Path
    version: str  # e.g. 3.11.7

    @property
    def release(self) -> tuple[int, ...]:
        """(3, 11)"""
        return tuple(int(part) for part in self.version.split(".")[:2])


@functools.cache
def find_interpreter(minor: str) -> Interpreter | str:
    """An interpreter of a minor version such as "3.11", or the sentence that says why there is none."""
    flaws: list[str] = []
    for candidate in _candidates(minor):
        facts = _ask(candidate)
        if facts is None or not str(facts["version"]).startswith(minor + "."):
            continue
        if facts["implementation"] != "cpython" or facts["bits"] != 64:
            flaws.append(f"{facts['path']} is no 64-bit CPython")
        elif reason := emulated(str(facts["machine"])):
            flaws.append(f"{facts['path']}: {reason}")
        elif not facts["complete"]:
            flaws.append(f"{facts['path']} lacks the modules venv and ensurepip (Debian: python{minor}-venv)")
        else:
            return Interpreter(Path(str(facts["path"])), str(facts["version"]))
    places = "PATH, pyenv or uv"
    because = f" ({'; '.join(dict.fromkeys(flaws))})" if flaws else ""
    return f"no Python {minor} was found by {places}{because}; `uv python install {minor}` or pyenv installs one"


def _candidates(minor: str) -> Iterator[str]:
    root = Path(os.environ.get("PYENV_ROOT") or (home() or Path("/")) / ".pyenv")
    on_path = shutil.which(f"python{minor}")
    # A shim of pyenv is a shell script that starts one of the versions below. Asking these directly takes a fifth of the CPU time.
    if on_path and Path(on_path).parent != root / "shims":
        yield on_path
    if platform.python_version().startswith(minor + "."):
        yield sys.executable
    yield from map(str, sorted(_of_pyenv(root, minor), key=_patch, reverse=True))
    if uv := find_program("uv"):
        answer = _output([uv, "python", "find", "--offline", "--no-python-downloads", "--no-project", minor])
        if answer:
            yield answer.strip()


def _of_pyenv(root: Path, minor: str) -> list[Path]:
    try:
        return list(root.glob(f"versions/{minor}.*/bin/python{minor}"))
    except OSError:  # another user's folder, which `su` leaves in PYENV_ROOT
        return []


def _patch(path: Path) -> int:
    number = rules.whole(path.parent.parent.name.split(".")[-1])
    return -1 if number is None else number


@functools.cache
def _ask(candidate: str) -> dict[str, object] | None:
    answer = _output([candidate, "-I", "-c", _QUESTION])
    try:
        facts = json.loads(answer) if answer else None
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


def _output(command: list[str]) -> str | None:
    """The output of a command, or None when it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None
