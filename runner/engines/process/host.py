"""Cells in an interpreter that is there already, with whatever frameworks it has: to measure your own installation."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from runner.catalog.images import Image
from runner.engines.base import Engine, EngineError, Prepared, Settings, Slot
from runner.engines.process.process import LocalRunning, start_process, sweep_scratch
from runner.paths import PROJECT, cache_folder

# The user's own installation may need these, and they are part of what is measured.
_KEPT = ("HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME")

_LISTING_SECONDS = 300  # importing every framework, on a cold disk

# What is installed, as name==version: it stands in for the lock that this interpreter does not have.
_INSTALLED = """
import json, platform, sys
from importlib import metadata
names = sorted({"%s==%s" % (d.metadata["Name"], d.version) for d in metadata.distributions()})
print(json.dumps({"python": platform.python_version(), "path": sys.executable, "installed": names}))
"""


class HostImage(Image):
    """The interpreter with one of its frameworks, as an image, so that plan and store need no second notion."""

    installed_sha256: str

    @property
    def lock_sha256(self) -> str:
        """sha256 (hex) of the list of installed packages: there is no lock."""
        return self.installed_sha256


class HostEngine(Engine):
    """The engine `host`. By default it measures the interpreter that the runner runs in."""

    name = "host"
    measures_interpreter = True

    def __init__(self, settings: Settings | None = None) -> None:
        self._python = str((settings and settings.python) or sys.executable)

    def unavailable(self) -> str | None:
        """Why the interpreter cannot be used; None when it has at least one framework."""
        try:
            if self._frameworks:
                return None
        except EngineError as error:
            return str(error)
        return (
            f"{self._python} has none of the frameworks; install one there, or name another interpreter with --python"
        )

    def images(self, gpus: bool) -> dict[str, Image]:
        """An image for each framework of the interpreter, by name. `gpus`: use GPUs where a framework can."""
        installed = self._installed
        digest = _sha256("\n".join([installed["python"], installed["path"], *installed["installed"]]))
        images: dict[str, Image] = {}
        for entry in self._frameworks:
            version = str(entry["version"])
            kinds = entry.get("device_kinds")
            cuda = gpus and (kinds is None or "cuda" in kinds)
            name = re.sub(r"[^a-z0-9.]+", "-", f"host-{entry['framework']}-{version.split('+')[0]}".lower())
            images[name] = HostImage.model_construct(
                name=name,
                folder=PROJECT,
                frameworks=(str(entry["framework"]),),
                framework_version=version,
                python=".".join(installed["python"].split(".")[:2]),
                accelerator="cuda" if cuda else "cpu",
                base="host",
                precisions=("fp32", "tf32") if cuda else ("fp32",),
                locked=date.today(),
                download_gb=0.0,
                installed_sha256=digest,
            )
        return images

    def unfit(self, image: Image) -> str | None:
        """Only this interpreter's own images can run in it."""
        return None if isinstance(image, HostImage) else f"the engine `host` runs what {self._python} has, not images"

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        """Nothing is made."""
        digest = f"sha256:{_sha256(image.lock_sha256 + self._python)}"
        return Prepared(image, digest, (self._installed["path"], "-m", "bench"))

    def start(
        self,
        prepared: Prepared,
        arguments: Sequence[str],
        slot: Slot,
        label: str,
        data: Path | None,
        cache: Path,
    ) -> LocalRunning:
        """Start a cell as a process, with the user's own home: its settings belong to the installation."""
        return start_process(prepared, arguments, slot, label, data, cache, keep=_KEPT)

    def sweep(self) -> int:
        """Remove the scratch folders of runners that died."""
        return sweep_scratch()

    @functools.cached_property
    def _installed(self) -> dict[str, Any]:
        installed: dict[str, Any] = self._json(["-c", _INSTALLED], dict)
        return installed

    @functools.cached_property
    def _frameworks(self) -> list[dict[str, Any]]:
        frameworks = self._json(["-m", "bench", "frameworks"], list)
        return [entry for entry in frameworks if isinstance(entry, dict) and {"framework", "version"} <= set(entry)]

    def _json(self, arguments: Sequence[str], kind: type) -> Any:
        """What the interpreter prints, as JSON. Raises EngineError."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"PYTHONPATH": str(PROJECT), "DLBENCH_CACHE": str(cache_folder() / "data")}
        command = [self._python, *arguments]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=_LISTING_SECONDS, env=environment, check=False
            )
            answer = json.loads(ended.stdout) if ended.returncode == 0 else None
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"{self._python} did not say what it has: {error}") from error
        if not isinstance(answer, kind):
            last = ended.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
            raise EngineError(f"{self._python} did not say what it has (exit {ended.returncode}): {last[0][:300]}")
        return answer


def _sha256(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
