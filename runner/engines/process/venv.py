"""Cells in virtual environments made from the same locks as the container images: for machines without an engine.

One environment per image, lock and interpreter, kept in the user's cache. pip installs it, so that a site's own pip
configuration holds: mirrors, extra indexes, wheel folders, certificates, proxies.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from runner.engines.base import Engine, EngineError, Prepared, Settings, Slot
from runner.engines.process.interpreters import Interpreter, find_interpreter
from runner.engines.process.process import LocalRunning, start_process, sweep_scratch
from runner.paths import cache_folder

if TYPE_CHECKING:
    from runner.catalog.images import Image

# The last pip for Python 3.6; Dockerfile.base has the same, which a test compares. The pip of ensurepip there knows no manylinux_2_x wheel.
OLD_PIP = "pip==21.3.1 --hash=sha256:deaf32dcd9ab821e359cd8330786bcd077604b5c5730c0b096eda46f95c24a2d"
OLD_PIP_BELOW = (3, 8)

COMPLETE = ".complete"
_SHOWN_LINES = 15

# What pip prints when no index has a requirement. A wheel that it refuses for its hash gives another message.
_NOT_FOUND = "No matching distribution found"

# Settings that would install elsewhere than in the environment. `user` may stand in a site's pip.conf, too.
_MISPLACING = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIREMENT", "PIP_CONSTRAINT")


class VenvEngine(Engine):
    """The engine `venv`. It has no settings: virtual environments can be made wherever the runner runs."""

    name = "venv"

    def __init__(self, settings: Settings | None = None) -> None:
        pass

    def unfit(self, image: Image) -> str | None:
        """Why no environment of the image can be made here; None when one can."""
        if image.cuda_from == "base":
            return f"the image's CUDA {image.cuda} is in its base image, and an environment has no base image; use --engine docker"
        interpreter = find_interpreter(image.python)
        return interpreter if isinstance(interpreter, str) else _missing(image)

    def cost(self, image: Image) -> int:
        """Bytes of wheels to fetch; 0 when the environment is there."""
        interpreter = find_interpreter(image.python)
        ready = isinstance(interpreter, Interpreter) and (environment_folder(image, interpreter) / COMPLETE).exists()
        return 0 if ready else image.download_bytes

    def images_folder(self) -> Path | None:
        """Where environments lie; None before there is one."""
        folder = cache_folder()
        return folder if folder.is_dir() else None

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        """Make the environment unless it is there. Raises EngineError."""
        interpreter = find_interpreter(image.python)
        if isinstance(interpreter, str):
            raise EngineError(f"{image.name}: {interpreter}")
        folder = environment_folder(image, interpreter)
        try:
            with alone(folder, say):
                if not (folder / COMPLETE).exists():
                    _make(image, interpreter, folder, say)
        except OSError as error:
            raise EngineError(f"{image.name}: {folder} could not be made: {error}") from error
        return Prepared(image, f"sha256:{_key(image, interpreter)}", (str(folder / "bin" / "python"), "-m", "bench"))

    def start(
        self,
        prepared: Prepared,
        arguments: Sequence[str],
        slot: Slot,
        label: str,
        data: Path | None,
        cache: Path,
    ) -> LocalRunning:
        """Start a cell as a process. Its home is a scratch folder: settings of the user's frameworks do not reach it."""
        extra = {"PYTHONNOUSERSITE": "1"}
        return start_process(prepared, arguments, slot, label, data, cache, extra=extra)

    def sweep(self) -> int:
        """Remove the scratch folders of runners that died."""
        return sweep_scratch()


def _missing(image: Image) -> str | None:
    """Which Debian programs and libraries of the image this machine lacks; None when it has all of them."""
    missing = [package for package, probe in image.debian.items() if probe and not _is_there(probe)]
    if not missing:
        return None
    return (
        f"this machine lacks Debian packages of the image ({', '.join(missing)}); `apt-get install {' '.join(missing)}`"
    )


def _is_there(probe: str) -> bool:
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
    return hashlib.sha256(content.encode()).hexdigest()


def environment_folder(image: Image, interpreter: Interpreter) -> Path:
    """Where the environment of an image lies, or will."""
    return cache_folder() / "venvs" / f"{image.name}-{_key(image, interpreter)[:12]}"


@contextlib.contextmanager
def alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the folder's lock: of two runners that need the same environment, one makes it and the other waits."""
    folder.parent.mkdir(parents=True, exist_ok=True)
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
    log = cache_folder() / "build-logs" / f"{image.name}.venv.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    steps = _Steps(image.name, log, say)
    say(f"{image.name}: making its environment, {image.download_gb:g} GB to fetch where pip has nothing cached")
    steps.must_succeed([str(interpreter.path), "-I", "-m", "venv", str(folder)], "the environment could not be made")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--no-input", "--disable-pip-version-check"]
    if tuple(int(part) for part in interpreter.version.split(".")[:2]) < OLD_PIP_BELOW:
        lock = folder / "pip.lock"
        lock.write_text(f"{OLD_PIP}\n")
        steps.must_succeed([*pip, "install", "--require-hashes", "-r", str(lock)], f"{OLD_PIP} could not be installed")
    install = [*pip, "install", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(image.lock_path)]
    if not steps.succeeds(install):
        if image.extra_index is None or not steps.said(_NOT_FOUND):
            raise steps.failure("its lock could not be installed")
        say(f"{image.name}: once more with {image.extra_index}")
        steps.must_succeed([*install, "--extra-index-url", image.extra_index], "its lock could not be installed")
    if image.source_builds:
        build = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
        steps.must_succeed([*pip, "install", *build, "-r", str(image.sources_path)], "its sources could not be built")
    if image.finish_path.is_file():
        steps.must_succeed(["sh", str(image.finish_path)], f"{image.finish_path} failed", folder / "bin")
    (folder / COMPLETE).write_text(f"{_key(image, interpreter)}\n")


class _Steps:
    """Commands whose output goes to a log, in part to the user, and at its end into an error."""

    def __init__(self, name: str, log: Path, say: Callable[[str], None]) -> None:
        self._name = name
        self._log = log
        self._say = say
        self._last: deque[str] = deque(maxlen=_SHOWN_LINES)
        log.write_bytes(b"")

    def said(self, words: str) -> bool:
        """Whether the words are among the last command's last lines."""
        return any(words in line for line in self._last)

    def failure(self, what: str) -> EngineError:
        lines = "\n".join(f"  {line}" for line in self._last)
        return EngineError(f"{self._name}: {what}\n{lines}\nthe whole log: {self._log}")

    def must_succeed(self, command: Sequence[str], failure: str, programs: Path | None = None) -> None:
        if not self.succeeds(command, programs):
            raise self.failure(failure)

    def succeeds(self, command: Sequence[str], programs: Path | None = None) -> bool:
        """Run a command to its end, with `programs` first on its PATH; an interrupt ends the command as well."""
        self._last.clear()
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in _MISPLACING and name != "VIRTUAL_ENV" and not name.startswith("PYTHON")
        } | {"PIP_USER": "0"}
        if programs:
            environment["PATH"] = f"{programs}:{environment.get('PATH', os.defpath)}"
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            with self._log.open("a", encoding="utf-8") as log, process.stdout:
                for line in process.stdout:
                    log.write(line)
                    self._last.append(line.rstrip()[:500])
                    if line.startswith(("Collecting ", "Installing ", "Successfully ")):
                        self._say(f"{self._name}: {line.strip()[:100]}")
            return process.wait() == 0
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
