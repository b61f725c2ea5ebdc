"""Cells in containers of Podman, rootless or as root, over its Docker-compatible API. Only what differs from Docker is here."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from runner.engines.base import Launch
from runner.engines.docker import read_back
from runner.engines.docker.container import CDI_KIND, cdi_devices, maps_users
from runner.engines.docker.engine import DockerEngine
from runner.errors import EngineError
from runner.images.docker_client import Client, asking, connect

if TYPE_CHECKING:
    from docker.models.containers import Container


# The first release whose Docker-compatible API gives a container the GPUs that it is asked for.
_GPUS_SINCE = "5.4.0"

# Podman reads CDI specifications from these folders, and lists neither them nor the names.
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")

# Podman as root raises these two above its own limits, which root without CAP_SYS_RESOURCE may not. nofile: that of Docker 29. nproc: the
# kernel's default pid_max, so it limits nothing that pids_limit does not.
_ULIMITS = {"nofile": 1024, "nproc": 32768}


def address() -> str:
    """The address of Podman's socket: CONTAINER_HOST as for Podman's own command, else the user's own socket."""
    if named := os.environ.get("CONTAINER_HOST"):
        return named
    if os.getuid() == 0:
        return "unix:///run/podman/podman.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return f"unix://{Path(runtime) / 'podman' / 'podman.sock'}"


class PodmanEngine(DockerEngine):
    """The engine `podman`."""

    name = "podman"

    @functools.cached_property
    def _client(self) -> Client:
        return connect(host=address())

    @functools.cached_property
    def _info(self) -> dict[str, Any]:
        info = dict(self._client.info())
        # Docker lists it among the options of security.
        rootless = ["name=rootless"] if info.get("Rootless") else []
        security = [*(info.get("SecurityOptions") or ()), *rootless]
        return info | {"SecurityOptions": security, "CDISpecDirs": list(_CDI_FOLDERS)}

    # Podman knows GPUs by CDI names only.
    _hook = ""

    def why_no_build(self) -> str | None:
        if not os.environ.get("CONTAINER_HOST") and not shutil.which("podman"):
            return "it is not installed"
        if reason := super().why_no_build():
            manager = "systemctl" if os.getuid() == 0 else "systemctl --user"
            return (
                f"{reason}; `{manager} start podman.socket` starts Podman's, as does `podman system service --time=0`"
            )
        name = read_back.engine_name(self.version)
        return None if name.startswith("Podman") else f"{name} answers at {address()}, not Podman; use --engine docker"

    def why_no_gpu(self) -> str | None:
        release = str(self.version.get("Version"))
        try:
            ignores = Version(release) < Version(_GPUS_SINCE)
        except InvalidVersion:
            ignores = True
        if ignores:
            return f"Podman {release} starts containers without the GPUs that its API is asked for; {_GPUS_SINCE} gives them"
        if any(name.startswith(CDI_KIND) for name in cdi_devices(self._info)):
            return None
        return (
            "Podman finds no GPU by CDI; `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` describes them to it"
        )

    def options(self, launch: Launch, hook: str) -> dict[str, Any]:
        """The container's limits. Raises EngineError for a GPU that Podman would leave out."""
        from docker.types import Ulimit

        if launch.slot.device_kind == "cuda" and (reason := self.why_no_gpu()):
            raise EngineError(reason)
        options = super().options(launch, hook)
        if not maps_users(self._info):
            options["ulimits"] += [Ulimit(name=name, soft=most, hard=most) for name, most in _ULIMITS.items()]
        return options

    def host_config(self, container: Container) -> Mapping[str, Any]:
        """By Podman's own API, whose answer has the capabilities that are left. Before the start it does not show GPUs by CDI names."""
        api = self._client.api
        with asking():
            answer = api.get(f"{api.base_url}/v4.0.0/libpod/containers/{container.id}/json")
            answer.raise_for_status()
        inspected = answer.json()
        host: dict[str, Any] = inspected["HostConfig"]
        return host | {"CapDrop": [] if inspected.get("BoundingCaps") else ["ALL"]}
