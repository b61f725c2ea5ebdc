"""Which GPUs an engine knows by their CDI names, and the request that asks an engine for GPUs.

Docker 28.2 and newer tell the names. From 25 on an engine that has CDI switched on tells only where its specifications lie (both met);
there the names are read from the files (`kind` and `devices[].name` of the Container Device Interface's specification).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker.types import DeviceRequest

KIND = "nvidia.com/gpu"

# A specification of sixteen GPUs has some 100 kB; what is larger is none.
_MAX_BYTES = 16 << 20


def name(uuid: str) -> str:
    """The CDI name of a GPU or a MIG instance, as `nvidia-ctk cdi generate` gives it."""
    return f"{KIND}={uuid}"


def device_request(uuids: Sequence[str], known: Collection[str]) -> DeviceRequest:
    """What asks the engine for these GPUs: by CDI name where it knows all of them, else of NVIDIA's hook.

    A container that got its devices by CDI keeps them when systemd reloads; one that got them of the hook may lose them.
    """
    from docker.types import DeviceRequest

    names = [name(uuid) for uuid in uuids]
    if set(names) <= set(known):
        return DeviceRequest(driver="cdi", device_ids=names)
    return DeviceRequest(device_ids=list(uuids), capabilities=[["gpu"]])


def devices(info: Mapping[str, Any]) -> frozenset[str]:
    """The CDI names that an engine knows, by its `info`; none where it has no CDI."""
    if told := info.get("DiscoveredDevices"):
        return frozenset(str(device.get("ID")) for device in told if device.get("Source") == "cdi")
    return frozenset(found for path in specifications(info) for found in _names(path))


def specifications(info: Mapping[str, Any]) -> list[Path]:
    """The files that the engine reads CDI names from; an engine without CDI, or with CDI switched off, tells of no folder."""
    folders = [Path(folder) for folder in info.get("CDISpecDirs") or ()]
    return [path for folder in folders for path in sorted(folder.glob("*")) if path.suffix in (".json", ".yaml")]


def _names(path: Path) -> Iterator[str]:
    """The names that one file gives; none where it cannot be read: the engine leaves such a file out too."""
    import yaml

    try:
        if path.stat().st_size > _MAX_BYTES:
            return
        text = path.read_text("utf-8")
        told = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        yield from [f"{told['kind']}={device['name']}" for device in told["devices"]]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return
