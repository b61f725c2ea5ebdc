"""Runs of `tests.fixtures.hostile` in a folder of their own, and what is alive and left of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner import trees
from runner.catalog.images import PROJECT
from runner.engines.docker.engine import OWNER_LABEL, RUN_LABEL
from tests.fixtures import hostile

_ROLES = {b"keeper.py": "keeper", b"\0agent": "agent", b"import base64": "cell", b"\0matrix": "runner"}


class Site:
    """`client` is the Docker client where the cells run in containers of the image `base`."""

    def __init__(self, way: str, folder: Path, kinds: Sequence[str], client: Any = None, base: str = "") -> None:
        self.way, self.folder, self.client, self.printed = way, folder, client, folder / "printed"
        image = str(client.images.get(base).id) if client else "sha256:0"
        engine = ["--nodes", "local:2", "--engine", "venv"] if way == "nodes" else ["--engine", way]
        self._words = ["matrix", "--gpus", "none", *engine, "--out", str(folder / "results")]
        self._environment = os.environ | hostile.variables(folder, kinds, image)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.fixtures.hostile", *self._words, *words]
        with self.printed.open("wb") as printed:
            return subprocess.Popen(command, cwd=PROJECT, env=self._environment, stdout=printed, stderr=printed)

    def said(self) -> str:
        return self.printed.read_text(errors="replace")

    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob("results/*/run.json"))

    def alive(self) -> dict[str, list[int]]:
        """The processes of this folder, by what they are."""
        found: dict[str, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.fsencode(self.folder) in (path / "environ").read_bytes():
                    words = (path / "cmdline").read_bytes()
                    role = next((role for word, role in _ROLES.items() if word in words), "other")
                    found.setdefault(role, []).append(int(path.name))
            except OSError:
                pass
        return found

    def containers(self) -> list[str]:
        if self.client is None:
            return []
        runs = {run.name for run in self.runs()}
        listed = self.client.api.containers(all=True, filters={"label": OWNER_LABEL})
        return [str(entry["Id"]) for entry in listed if entry["Labels"].get(RUN_LABEL) in runs]

    def signal(self, container: str, number: int) -> bool:
        """Send a signal to what runs in a container; False: it had ended meanwhile."""
        import docker

        try:
            self.client.api.kill(container, number)
        except docker.errors.APIError:
            return False
        return True

    def left(self) -> list[object]:
        """Whatever is left of runs that have ended; nothing should be."""
        cache = self.folder / "xdg" / "dlbench"
        armed = [path for path, status in trees.below(cache) if status.st_mode & 0o6000]
        parts = list((self.folder / "results").rglob("*.part"))
        # A kind makes a folder with a raised two, which nobody can take for his own.
        scratch = [path for path in cache.glob("s*/*") if "\u00b2" not in path.name]
        mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if f"{self.folder}/" in line]
        return [*self.alive().items(), *mounts, *self.containers(), *scratch, *armed, *parts]
