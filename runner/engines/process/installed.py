"""An existing interpreter: its packages, the names of its frameworks as images, and its cells as processes."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.engines.base import Engine, Launch, ReadyImage
from runner.engines.process.process import LocalRunning, start_process, sweep_scratch
from runner.errors import EngineError
from runner.paths import PROJECT, cache_folder

if TYPE_CHECKING:
    from runner.catalog.images import Image

# The engine that measures it.
ENGINE = "host"

# The user's own installation may need these variables, and they are part of what is measured.
KEPT = ("HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")

_LISTING_SECONDS = 300  # importing every framework, on a cold disk

# The installed packages, as name==version: it stands in for the lock that this interpreter does not have.
_INSTALLED = """
import json, platform, sys
from importlib import metadata
names = sorted({"%s==%s" % (d.metadata["Name"], d.version) for d in metadata.distributions()})
print(json.dumps({"python": platform.python_version(), "path": sys.executable, "installed": names, "machine": platform.machine()}))
"""


class InterpreterEngine(Engine):
    """Starts the cells of an interpreter. In the standard library only: the kit measures where nothing is installed."""

    name = ENGINE
    measures_interpreter = True

    def __init__(self, python: str) -> None:
        self._python = python

    @functools.cached_property
    def packages(self) -> dict[str, Any]:
        return packages(self._python)

    def prepare(self, image: Image, say: Callable[[str], None]) -> ReadyImage:
        """Nothing is made."""
        return ReadyImage(image, image_digest(image.lock_sha256, self._python), (self.packages["path"], "-m", "bench"))

    def start(self, launch: Launch) -> LocalRunning:
        """Start a cell as a process, with the user's own home: its settings belong to the installation."""
        return start_process(launch, keep=KEPT)

    def sweep(self) -> int:
        return sweep_scratch()


def packages(python: str) -> dict[str, Any]:
    """{"python": version, "path": of the interpreter, "installed": [name==version], "machine": its architecture}. Raises EngineError."""
    answer: dict[str, Any] = _ask(python, ["-c", _INSTALLED], dict)
    return answer


def frameworks(python: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The frameworks that it can import, as `python -m bench frameworks` prints them, and a sentence on each that lacks a package beside
    its own. Raises EngineError."""
    entries = [entry for entry in _ask(python, ["-m", "bench", "frameworks"], list) if isinstance(entry, dict)]
    lacking: dict[str, list[str]] = {}
    for entry in entries:
        if {"framework", "lacks"} <= set(entry):
            lacking.setdefault(str(entry["lacks"]), []).append(str(entry["framework"]))
    sentences = [
        f"{python} has {' and '.join(names)} and lacks {package}, which their cells need: install that there"
        for package, names in lacking.items()
    ]
    return [entry for entry in entries if {"framework", "version"} <= set(entry)], sentences


def opened(python: str, uuid: str) -> tuple[list[str], str]:
    """The UUIDs that CUDA opens in the interpreter where it may see this GPU only, and why it opens none. Raises EngineError."""
    answer = _ask(python, ["-m", "bench.cuda"], dict, CUDA_VISIBLE_DEVICES=uuid)
    return [str(each) for each in answer["uuids"]], str(answer["reason"] or "")


def image_name(framework: str, version: str) -> str:
    """The name of one of its frameworks as an image."""
    return re.sub(r"[^a-z0-9.]+", "-", f"host-{framework}-{version.split('+')[0]}".lower())


def lock_sha256(there: Mapping[str, Any]) -> str:
    """sha256 (hex) of what `packages` returned."""
    return _sha256("\n".join([there["python"], there["path"], *there["installed"]]))


def image_digest(lock: str, python: str) -> str:
    """The digest that stands for an image; `lock` is that of `lock_sha256`."""
    return f"sha256:{_sha256(lock + python)}"


def _ask(python: str, arguments: Sequence[str], kind: type, **variables: str) -> Any:
    """The JSON that the interpreter prints. Raises EngineError."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") or name == "PYTHONDONTWRITEBYTECODE"
    }
    environment |= {"PYTHONPATH": str(PROJECT), "DLBENCH_CACHE": str(cache_folder() / "data"), **variables}
    command = [python, *arguments]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_LISTING_SECONDS, env=environment, check=False
        )
        answer = json.loads(ended.stdout) if ended.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{python} did not say what it has: {error}") from error
    if not isinstance(answer, kind):
        last = ended.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        lacks = "; install NumPy there, which every cell needs" if "No module named 'numpy'" in last[0] else ""
        raise EngineError(f"{python} did not say what it has (exit {ended.returncode}): {last[0][:300]}{lacks}")
    return answer


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
