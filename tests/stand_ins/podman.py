"""A Podman service of the tests' own: its socket and, as root, its images are in a folder of theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType


def why_not() -> str | None:
    """Why no Podman can be started here; None when one can."""
    return next((f"there is no {name}" for name in ("podman", "catatonit") if not _which(name)), None)


def _which(name: str) -> str | None:
    # Debian's catatonit lies where podman looks for it.
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/libexec/podman:/usr/lib/podman")


class OwnPodman:
    """A `podman system service` for as long as the block runs."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dlp-", dir="/tmp"))
        self.url = f"unix://{self.folder}/podman.sock"
        self._command = ["podman"]
        if os.getuid() == 0:
            self._command += ["--root", f"{self.folder}/root", "--runroot", f"{self.folder}/runroot"]
        self._environment = dict(os.environ)
        if Path("/sys/fs/cgroup/unified").is_dir():
            # crun refuses machines with both versions of cgroups.
            (self.folder / "containers.conf").write_text('[engine]\nruntime = "runc"\n')
            self._environment["CONTAINERS_CONF"] = f"{self.folder}/containers.conf"

    def __enter__(self) -> OwnPodman:
        command = [*self._command, "system", "service", "--time=0", self.url]
        with open(self.folder / "log", "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        end = time.monotonic() + 60
        while not Path(self.url.removeprefix("unix://")).exists():
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__(None, None, None)
                raise RuntimeError(f"Podman did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(60)
        if os.getuid() == 0:
            subprocess.run([*self._command, "system", "reset", "--force"], env=self._environment, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def take(self, archive: Path) -> None:
        """Load an image of `docker save`."""
        load = [*self._command, "load", "--quiet", "--input", str(archive)]
        subprocess.run(load, env=self._environment, check=True, capture_output=True)
