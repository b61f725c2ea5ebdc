"""What `runner doctor` looks at, gathered once, and the form in which each check says what it found."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.machine.detect import detect_cpu, detect_gpus
from runner.machine.devices import Gpu

OK, WARN, FAIL, LEFT_OUT = "ok", "warn", "fail", "left out"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: str  # ok | warn | fail | left out
    saw: str
    means: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Scene:
    """What the checks look at, gathered once."""

    gpus: tuple[Gpu, ...]
    why_no_gpu: str | None
    refused: tuple[str, ...]
    module: str | None  # version of the loaded kernel module
    client: Any | None  # of the Docker Engine
    why_no_engine: str | None
    info: Mapping[str, Any]
    image: str | None  # an image that is there, to start a container of
    base_image: str | None


@contextlib.contextmanager
def scene(base_image: str | None, image: str | None) -> Iterator[Scene]:
    """Ask the driver and the engine what there is."""
    from runner.engines.base import EngineError
    from runner.engines.docker.engine import DockerEngine
    from runner.images.docker_client import asking, connect

    gpus, refused, why = detect_gpus(detect_cpu().cpus)
    client, info, no_engine = None, {}, DockerEngine().unavailable()
    try:
        if no_engine is None:
            client = connect()
            with asking():
                info = dict(client.info())
    except EngineError as error:
        no_engine = str(error)
    try:
        there = _an_image(client, image)
        broken = tuple(each.reason for each in refused)
        yield Scene(gpus, why, broken, _kernel_module(), client, no_engine, info, there, base_image)
    finally:
        if client is not None:
            client.close()


def _kernel_module() -> str | None:
    with contextlib.suppress(OSError):
        found = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
        return found.group(1) if found else None
    return None


def _an_image(client: Any | None, asked: str | None) -> str | None:
    """An image to start a container of: the one asked for, else any of ours that is there."""
    if asked or client is None:
        return asked
    ours = client.images.list(filters={"label": "dlbench.image"}) or client.images.list(name="dlbench/base")
    ours.sort(key=lambda each: int(each.attrs.get("Size") or 0))
    return str(ours[0].id) if ours else None
