"""The CDI names under which an engine knows the GPUs, and the request for GPUs that a container is started with.

Docker 28.2 and newer list the names. Docker 25 to 28.1 with CDI switched on list only the folders of the specifications; the names are
then read from those files (`kind` and `devices[].name` of the Container Device Interface's specification). Both were tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker.types import DeviceRequest

KIND = "nvidia.com/gpu"
# The driver that Docker 29 and later have where dockerd found nvidia-container-runtime-hook on its PATH.
HOOK_DRIVER = "nvidia.runtime-hook"
_HOOK_BY_NAME_SINCE = 29

# A specification of sixteen GPUs has some 100 kB. A larger file is something else.
_MAX_BYTES = 16 << 20


def name(uuid: str) -> str:
    """The CDI name of a GPU or a MIG instance, as `nvidia-ctk cdi generate` gives it."""
    return f"{KIND}={uuid}"


def hook_driver(info: Mapping[str, Any]) -> str:
    """The engine's name for NVIDIA's hook; "" where a request without a name is the hook's anyway.

    Docker 29 turns a request without a name into CDI names first, also into names that no specification has (moby#50228, moby#51942).
    """
    major = re.match(r"\d{1,4}", str(info.get("ServerVersion") or ""))
    return HOOK_DRIVER if major and int(major[0]) >= _HOOK_BY_NAME_SINCE else ""


def is_unknown_hook(said: str) -> bool:
    """True if an engine says that it has no hook: it found none on its own PATH when it started. It may have CDI."""
    return "could not select device driver" in said and HOOK_DRIVER in said


def device_request(uuids: Sequence[str], engine_names: Collection[str], hook: str = "") -> DeviceRequest:
    """The request for these GPUs: by CDI name where the engine knows all of them, else through NVIDIA's hook, by its name where it has one.

    When systemd reloads, a container keeps the devices that it got by CDI. It may lose those that it got from the hook.
    """
    from docker.types import DeviceRequest

    names = [name(uuid) for uuid in uuids]
    if set(names) <= set(engine_names):
        return DeviceRequest(driver="cdi", device_ids=names)
    return DeviceRequest(driver=hook, device_ids=list(uuids), capabilities=[["gpu"]])


def devices(info: Mapping[str, Any]) -> frozenset[str]:
    """The CDI names that an engine knows, by its `info`. Without CDI there are none."""
    if discovered := info.get("DiscoveredDevices"):
        return frozenset(str(device.get("ID")) for device in discovered if device.get("Source") == "cdi")
    return frozenset(cdi_name for path in specifications(info) for cdi_name in _names(path))


def specifications(info: Mapping[str, Any]) -> list[Path]:
    """The files that the engine reads CDI names from. An engine without CDI, or with CDI switched off, lists no folder."""
    folders = [Path(folder) for folder in info.get("CDISpecDirs") or ()]
    return [path for folder in folders for path in sorted(folder.glob("*")) if path.suffix in (".json", ".yaml")]


def _names(path: Path) -> Iterator[str]:
    """The names in one file. A file that cannot be read gives none: the engine leaves it out too."""
    import yaml

    try:
        if path.stat().st_size > _MAX_BYTES:
            return
        text = path.read_text("utf-8")
        specification = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        yield from [f"{specification['kind']}={device['name']}" for device in specification["devices"]]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return
