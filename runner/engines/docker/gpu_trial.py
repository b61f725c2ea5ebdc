"""Containers with GPUs as cells get them, that say what they see: for `runner doctor`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.engines.base import ReadyImage, Slot
from runner.engines.docker import cdi
from runner.engines.docker.container import container_options, device_groups, maps_users, prepare_cache
from runner.images.docker_client import DockerError, asking
from runner.paths import cache_folder
from runner.text import last_line

# The variable tells the way by which the GPUs came: the engine names them in it for the hook, CDI's specification sets it to "void", and so
# does the runner where it asks by CDI names. The bench asks CUDA.
_PROBE = (
    "import json, os; from bench import cuda; "
    "print(json.dumps([os.environ.get('NVIDIA_VISIBLE_DEVICES', ''), cuda.uuids(), cuda.why_none()]))"
)


@dataclass(frozen=True)
class Seen:
    """The GPUs that CUDA opens in a container, why it opens none, and the way by which they came."""

    uuids: tuple[str, ...]
    reason: str
    through: str


def cuda(client: Any, info: Mapping[str, Any], image: str, uuids: Sequence[str]) -> Seen | None:
    """None where the image has no bench. Raises EngineError."""
    try:
        printed = output(client, info, image, uuids, ("python", "-c", _PROBE))
    except DockerError as error:
        if "executable file not found" in error.said:
            return None
        raise
    try:
        visible, opened, reason = json.loads(last_line(printed))
        return Seen(tuple(map(str, opened)), str(reason or ""), "CDI" if visible in ("", "void") else "NVIDIA's hook")
    except (ValueError, TypeError):
        return None


def output(client: Any, info: Mapping[str, Any], image: str, uuids: Sequence[str], command: Sequence[str]) -> str:
    """The output of a command in a container that has a cell's limits and these GPUs. Raises EngineError."""
    try:
        return _output(client, info, image, uuids, command, cdi.hook_driver(info))
    except DockerError as error:
        if not cdi.is_unknown_hook(error.said):
            raise
    return _output(client, info, image, uuids, command, "")


def _output(
    client: Any, info: Mapping[str, Any], image: str, uuids: Sequence[str], command: Sequence[str], hook: str
) -> str:
    from docker.types import LogConfig

    slot, prepared = Slot("cuda", tuple(uuids), (), None), ReadyImage(None, image, (command[0],))
    cells = cache_folder() / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=cells, ignore_cleanup_errors=True) as folder:
        cache = Path(folder)
        user = prepare_cache(cache, shared=maps_users(info))
        names, groups = cdi.devices(info), device_groups(info)
        options = container_options(prepared, command[1:], slot, None, cache, user, names, groups, hook)
        # A cell's output is read while it is printed; this one's afterwards.
        options["log_config"] = LogConfig(type="json-file")
        with asking():
            container = client.containers.create(**options)
            # A container that cannot be started stays, and `run` of docker-py leaves it.
            try:
                container.start()
                container.wait()
                return bytes(container.logs()).decode("utf-8", "replace")
            finally:
                container.remove(force=True)
