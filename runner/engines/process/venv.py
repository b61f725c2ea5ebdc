"""Cells in virtual environments made from the same locks as the container images: for machines without an engine.

One environment per image, lock and interpreter, kept in the user's cache. uv installs it in a fifth of pip's time. A site's own pip
configuration holds: mirrors, extra indexes, wheel folders, certificates, proxies (runner/images/installing.py). If uv cannot install a
lock, pip tries it, and the error has pip's words. pip alone installs for Pythons that uv does not know.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from bench import rules
from runner import known_messages, paths, trees
from runner.catalog import architectures, images
from runner.engines import host_fault
from runner.engines.base import Engine, EngineError, Launch, ReadyImage, Settings, Slot
from runner.engines.process import environment_pins
from runner.engines.process.interpreters import Interpreter, find_interpreter
from runner.engines.process.process import (
    NOT_WALLED_IN,
    LocalRunning,
    cell_environment,
    make_scratch,
    start_process,
    sweep_scratch,
)
from runner.errors import DamagedError, naming, system_fault
from runner.images import installing
from runner.text import plural, visible

if TYPE_CHECKING:
    from runner.catalog.images import Image

# The last pip for Python 3.6; Dockerfile.base has the same, which a test compares. The pip of ensurepip there knows no manylinux_2_x wheel.
OLD_PIP = "pip==21.3.1 --hash=sha256:deaf32dcd9ab821e359cd8330786bcd077604b5c5730c0b096eda46f95c24a2d"
OLD_PIP_BELOW = (3, 8)

_FIRST_STEP = ("-m", "bench", "first-step")
# The longest that the first import and step of a framework may take.
_FIRST_STEP_SECONDS = 180

COMPLETE = ".complete"
# The same of an environment that `runner images try` made: it holds the pins that were left out.
COMPLETE_TRIAL = "left-out"
_SHOWN_LINES = 15

# The messages of pip and of uv when no index has a requirement. A wheel that is refused for its hash gives another message.
_NOT_FOUND = ("No matching distribution found", "No solution found when resolving")

# Pip's settings that would install elsewhere, as variables of the user's environment.
_MISPLACING = tuple(f"PIP_{name.upper()}" for name in installing.MISPLACING)


class VenvEngine(Engine):
    """The engine `venv`. It has no settings: virtual environments can be made wherever the runner runs."""

    name = "venv"

    def __init__(self, settings: Settings | None = None) -> None:
        pass

    def unfit(self, image: Image) -> str | None:
        if image.cuda_from == "base":
            return f"the image's CUDA {image.cuda} is in its base image, and an environment has no base image; use --engine docker"
        if reason := architectures.why_not(image, architectures.kernel_machine()):
            return reason
        interpreter = find_interpreter(image.python)
        return interpreter if isinstance(interpreter, str) else missing_programs(image)

    def parts(self, image: Image) -> Mapping[str, int]:
        """The bytes of wheels to fetch."""
        interpreter = find_interpreter(image.python)
        ready = isinstance(interpreter, Interpreter) and (environment_folder(image, interpreter) / COMPLETE).exists()
        return {} if ready else {image.name: image.download_bytes}

    def images_folder(self) -> Path | None:
        """The folder of environments, or before the first one its nearest existing parent."""
        return paths.nearest(paths.cache_folder())

    def lost_files(self, prepared: ReadyImage) -> str | None:
        """It is made again at the next start that needs it."""
        folder = Path(prepared.command[0]).parents[1]
        if not (gone := environment_pins.lost(folder)):
            return None
        with contextlib.suppress(OSError):
            (folder / COMPLETE).unlink()
        return f"its environment has lost {plural(len(gone), 'file')}, such as {gone[0]}: it is made again when it is needed next"

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        """Make the environment unless it is there. Raises EngineError."""
        interpreter = find_interpreter(image.python)
        if isinstance(interpreter, str):
            raise EngineError(f"{image.name}: {interpreter}")
        folder = environment_folder(image, interpreter)
        try:
            with alone(folder, say):
                if (folder / COMPLETE).exists() and (why := environment_pins.difference(folder, image.locks)):
                    say(f"{image.name}: its environment is not what was installed ({why}): it is made again")
                    (folder / COMPLETE).unlink()
                if not (folder / COMPLETE).exists():
                    _make(image, interpreter, folder, say)
        except OSError as error:
            raise EngineError(
                f"{image.name}: {folder} could not be made ({system_fault(error)}); {paths.CACHE_FIX}"
            ) from error
        return ReadyImage(image, f"sha256:{_key(image, interpreter)}", (str(folder / "bin" / "python"), "-m", "bench"))

    def start(self, launch: Launch) -> LocalRunning:
        """Start a cell as a process. Its home is a scratch folder: settings of the user's frameworks do not reach it."""
        of_driver = driver_variables() if launch.slot.device_kind == "cuda" else {}
        return start_process(launch, extra=self.variables() | of_driver)

    def notes(self, gpus: bool) -> tuple[str, ...]:
        """A warning: cells are not isolated."""
        return (NOT_WALLED_IN,)

    def variables(self) -> dict[str, str]:
        """Variables of the environment that a cell gets beside everybody's."""
        return {"PYTHONNOUSERSITE": "1"}

    def sweep(self) -> int:
        return sweep_scratch()


# CUDA's driver in user space.
DRIVER = "libcuda.so.1"


def missing_programs(image: Image) -> str | None:
    """Which Debian programs and libraries of the image this machine lacks; None when it has all of them."""
    missing = [package for package, probe in image.debian.items() if probe and not is_there(probe)]
    if not missing:
        return None
    return (
        f"this machine lacks Debian packages of the image ({', '.join(missing)}); `apt-get install {' '.join(missing)}`"
    )


def driver_variables() -> dict[str, str]:
    """LD_LIBRARY_PATH with the user's folders that hold CUDA's driver, where the loader finds it by this variable only: some pods and
    clusters mount it so. Any other folder of the user's could change the result unnoticed."""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    holding = [folder for folder in folders if (Path(folder) / DRIVER).is_file()]
    return {"LD_LIBRARY_PATH": ":".join(holding)} if holding and not is_there(DRIVER) else {}


def is_there(probe: str) -> bool:
    """A file where a path is given, else a shared library or a program."""
    if probe.startswith("/"):
        return Path(probe).is_file()
    if ".so" not in probe:
        return shutil.which(probe) is not None
    ldconfig = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if ldconfig is None:
        return False
    libraries = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
    return any(line.split()[:1] == [probe] for line in libraries.splitlines())


def _key(image: Image, interpreter: Interpreter) -> str:
    """sha256 (hex) of what the environment depends on."""
    content = f"{image.lock_sha256}\n{interpreter.path}\n{interpreter.version}\n"
    if image.accelerator == "cuda":
        content += images.LINKS.read_text(encoding="utf-8")
    return hashlib.sha256(content.encode()).hexdigest()


def environment_folder(image: Image, interpreter: Interpreter) -> Path:
    """The folder of an image's environment, made or not."""
    return paths.cache_folder() / "venvs" / f"{image.name}-{_key(image, interpreter)[:12]}"


def is_any_made() -> bool:
    """True if the environment of some image is complete."""
    return any((paths.cache_folder() / "venvs").glob(f"*/{COMPLETE}"))


def trial_folder(environment: Path) -> Path:
    """The folder of the environment that `runner images try` makes of the image of `environment`."""
    return environment.parent.parent / "tried" / environment.name


def is_any_of(name: str) -> bool:
    """True if an environment of the image of this name was made or tried, complete or not. What else is in the cache may go meanwhile."""
    return any(any((paths.cache_folder() / folder).glob(f"{name}-*")) for folder in ("venvs", "tried"))


@contextlib.contextmanager
def alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the folder's lock: of two runners that need the same environment, one makes it and the other waits. Raises EngineError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Without locks the library would take a lock file that it did not make for one that is held.
    if why := host_fault.folder_fault(folder.parent, host_fault.ENVIRONMENT):
        raise EngineError(f"{folder.parent} {why}; {paths.CACHE_FIX}")
    lock = FileLock(f"{folder}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("waiting for another runner that is making the same environment")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _make(image: Image, interpreter: Interpreter, folder: Path, say: Callable[[str], None]) -> None:
    """Make the environment in its final place; the marker, written last, says that it is whole."""
    packages = plural(sum(len(images.read_pins(lock)) for lock in image.locks), "package")
    say(f"{image.name}: installing {packages}, {image.download_gb:g} GB where none are cached")
    environment = NewEnvironment(image, interpreter, folder, say)
    environment.install(image.lock_path)
    environment.build_sources()
    environment.finish()
    if why := environment_pins.difference(folder, image.locks):
        raise EngineError(
            f"{image.name}: its packages were installed, and {folder} is not what its lock says: {why}; see `pip config list`"
        )
    environment.first_step()
    with naming(folder / COMPLETE):
        (folder / COMPLETE).write_text(f"{_key(image, interpreter)}\n")


class NewEnvironment:
    """An environment in the making, a step a method. Every step raises EngineError where it fails."""

    def __init__(self, image: Image, interpreter: Interpreter, folder: Path, say: Callable[[str], None]) -> None:
        """Make an environment that holds nothing but pip. The folder's old content is removed."""
        log = paths.cache_folder() / "build-logs" / f"{image.name}.venv.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        trees.remove(folder)
        self.folder = folder
        self._python = str(folder / "bin" / "python")
        self._image, self._say, self._steps = image, say, _Steps(image.name, log)
        # In two steps: `venv` alone swallows the words of ensurepip.
        bare = [str(interpreter.path), "-I", "-m", "venv", "--without-pip", str(folder)]
        self._steps.must_succeed(bare, "the environment could not be made")
        self._uv = paths.find_program("uv") if interpreter.release >= OLD_PIP_BELOW else None
        if not self._seeded(interpreter):
            pip = [self._python, "-I", "-m", "ensurepip", "--upgrade", "--default-pip"]
            self._steps.must_succeed(pip, "the environment could not be made: its pip could not be installed")
        self._steps.settings = installing.pip_variables(self._python)
        self._pip = [self._python, "-m", "pip", "--no-input", "--disable-pip-version-check", "install"]
        if interpreter.release < OLD_PIP_BELOW:
            lock = folder / "pip.lock"
            with naming(lock):
                lock.write_text(f"{OLD_PIP}\n")
            old = [*self._pip, "--require-hashes", "-r", str(lock)]
            self._steps.must_succeed(old, f"{OLD_PIP} could not be installed")

    def _seeded(self, interpreter: Interpreter) -> bool:
        """Install the interpreter's own pip by uv; False where there is no uv, or the interpreter's wheels lie elsewhere."""
        if self._uv is None:
            return False
        wheels = installing.bundled_wheels(str(interpreter.path))
        return bool(wheels) and self._steps.succeeds([*self._by_uv(), "--offline", *wheels], uv=True)

    def _by_uv(self) -> list[str]:
        assert self._uv is not None
        return [self._uv, "pip", "install", "--python", self._python, *installing.UV_FLAGS]

    def install(self, lock: Path) -> None:
        """Install what a lock names, wheels only."""
        wheels = ["--only-binary", ":all:", "--require-hashes", "-r", str(lock)]
        if self._uv is not None:
            if self._installed([*self._by_uv(), *wheels], uv=True):
                return
            self._say(f"{self._image.name}: uv could not install its lock, so pip tries it")
        if not self._installed([*self._pip, "--no-deps", *wheels], uv=False):
            raise self._steps.failure("its lock could not be installed")

    def _installed(self, command: list[str], uv: bool) -> bool:
        """Run it, and where the site does not have a package once more with the image's further index; True if it succeeded."""
        if self._steps.succeeds(command, uv=uv):
            return True
        extra_index = self._image.extra_index
        if extra_index is None or not self._steps.said(*_NOT_FOUND):
            return False
        self._say(f"{self._image.name}: once more with {extra_index}")
        return self._steps.succeeds([*command, "--extra-index-url", extra_index], uv=uv)

    def build_sources(self) -> None:
        """Build and install what the image has as source archives only."""
        if self._image.source_builds:
            build = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
            sources = [*self._pip, *build, "-r", str(self._image.sources_path)]
            self._steps.must_succeed(sources, "its sources could not be built")

    def first_step(self) -> None:
        """Import the frameworks and take a step: that writes the bytecode of what cells use, and is a first sign that they work.

        A cell writes none, so without this each repeat would compile it. pip has compiled every file. A failure is only told:
        the cells will tell why.
        """
        python = [name for name in self._image.frameworks if "entrypoint" not in rules.framework_declaration(name)]
        if self._uv is None or not python:
            return
        scratch = make_scratch()
        try:
            cell = cell_environment(Slot("cpu", (), (), None), scratch, scratch) | {"PYTHONNOUSERSITE": "1"}
            del cell["PYTHONDONTWRITEBYTECODE"]
            step = [self._python, *_FIRST_STEP, *python]
            if not self._steps.succeeds(step, environment=cell, seconds=_FIRST_STEP_SECONDS):
                why = self._steps.last_line()
                self._say(f"{self._image.name}: its first step failed ({why}); its cells will tell more")
        finally:
            trees.detach(scratch)
            trees.remove(scratch)

    def finish(self) -> None:
        """Run the script of all images, and the image's finish.sh, where it has one."""
        for path in (images.LINKS, self._image.finish_path):
            if path.is_file():
                self._steps.must_succeed(["sh", str(path)], f"{path} failed", programs=self.folder / "bin")


class _Steps:
    """Commands whose output goes to a log, and its last lines into an error."""

    def __init__(self, name: str, log: Path) -> None:
        self._name = name
        self._log = log
        self._last: deque[str] = deque(maxlen=known_messages.MOST_LINES)
        # Variables for pip, which then reads no file of settings. Those of the user's own environment go before them.
        self.settings: dict[str, str] | None = None
        with naming(log):
            log.write_bytes(b"")

    def said(self, *words: str) -> bool:
        """True if any of these words are among the last command's last lines."""
        return any(word in line for line in self._last for word in words)

    def last_line(self) -> str:
        """The last line that the last command printed, for a sentence."""
        return visible(next((line.strip() for line in reversed(self._last) if line.strip()), "it printed nothing"), 200)

    def failure(self, what: str) -> EngineError:
        # pip's warnings, of each attempt to reach an index, would hide its reason.
        reason = list(itertools.dropwhile(lambda line: not line.lstrip().startswith("ERROR: "), self._last))
        lines = "\n".join(f"  {line}" for line in reason[:_SHOWN_LINES] or list(self._last)[-_SHOWN_LINES:])
        if not known_messages.find(lines) and (cause := known_messages.cause(self._last)):
            lines = f"  {cause}\n{lines}"
        # First: a table shows the beginning.
        other = known_messages.other_file(lines)
        kind = DamagedError if other else EngineError
        return kind(f"{self._name}: {other or what}\n{lines}\nthe whole log: {self._log}")

    def must_succeed(self, command: Sequence[str], failure: str, programs: Path | None = None) -> None:
        if not self.succeeds(command, programs):
            raise self.failure(failure)

    def succeeds(
        self,
        command: Sequence[str],
        programs: Path | None = None,
        uv: bool = False,
        environment: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> bool:
        """Run a command to its end; an interrupt ends the command as well, and so does the end of its seconds.

        `programs` come first on its PATH; `uv`: it takes pip's settings as uv does; `environment`: of a command that is no installer.
        """
        self._last.clear()
        process = subprocess.Popen(
            self._as_uv(command) if uv else command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment or self._variables(programs, uv),
            cwd="/",
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        clock = threading.Timer(seconds, _end, [process]) if seconds else None
        try:
            if clock:
                clock.start()
            with naming(self._log), self._log.open("a", encoding="utf-8") as log, process.stdout:
                for line in process.stdout:
                    log.write(line)
                    self._last.append(line.rstrip()[:500])
            return process.wait() == 0
        except BaseException:
            _end(process)
            process.wait()
            raise
        finally:
            if clock:
                clock.cancel()

    def _options(self) -> dict[str, str]:
        return installing.pip_options(self.settings or {}, self._users())

    def _as_uv(self, command: Sequence[str]) -> list[str]:
        return [*command, *installing.uv_arguments(self._options())]

    def _users(self) -> dict[str, str]:
        """The user's variables that an installer may see."""
        return {
            name: value
            for name, value in os.environ.items()
            if name not in _MISPLACING and name != "VIRTUAL_ENV" and not name.startswith("PYTHON")
        }

    def _variables(self, programs: Path | None, uv: bool) -> dict[str, str]:
        environment = (self.settings or {}) | self._users() | {"PIP_USER": "0"}
        if uv:
            environment = installing.uv_variables(self._options(), environment)
        if self.settings is not None:
            environment["PIP_CONFIG_FILE"] = os.devnull
        if programs:
            environment["PATH"] = f"{programs}:{environment.get('PATH', os.defpath)}"
        return environment


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
