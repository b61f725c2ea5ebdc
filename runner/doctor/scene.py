"""The facts that the checks of `runner doctor` read, gathered once, and the form of their results."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.machine import clocks
from runner.machine.detect import detect_cpu, detect_gpus
from runner.machine.devices import Gpu
from runner.machine.visible import limits

OK, WARN, FAIL, SKIPPED, OPEN, LACKING = "ok", "warn", "fail", "skipped", "open", "lacking"


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    status: str  # ok | warn | fail | skipped; open: it could not be told; lacking: what the checks need is not there
    saw: str
    means: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Scene:
    """The facts that the checks read, gathered once."""

    gpus: tuple[Gpu, ...]
    why_no_gpu: str | None
    refused: tuple[str, ...]
    # The version of the loaded kernel module.
    module: str | None
    # A client of the Docker Engine.
    client: Any | None
    why_no_engine: str | None
    info: Mapping[str, Any]
    # An image on this machine, to start a container of.
    image: str | None
    base_image: str | None
    # Why the GPUs that this user may not use are left out.
    hidden: tuple[str, ...] = ()
    # The effect of CUDA_VISIBLE_DEVICES here.
    limits: tuple[str, ...] = ()
    # The clocks that a killed runner left locked, and what became of them.
    clocks: tuple[str, ...] = ()
    # The folder of the results.
    out: Path = Path("results")
    # The engine's own name and version.
    engine: str = ""


@contextlib.contextmanager
def gather(base_image: str | None, image: str | None, out: Path) -> Iterator[Scene]:
    """The facts of this machine: its driver, its GPUs, its engine."""
    from runner.engines.base import EngineError
    from runner.engines.docker.engine import DockerEngine
    from runner.engines.docker.read_back import engine_name
    from runner.images.docker_client import asking, connect

    gpus, refused, why = detect_gpus(detect_cpu().cpus)
    docker = DockerEngine()
    client, info, engine, no_engine = None, {}, "", docker.unavailable()
    try:
        if no_engine is None:
            client = connect()
            with asking():
                info = dict(client.info())
            engine = engine_name(docker.version)
    except EngineError as error:
        no_engine = str(error)
    try:
        test_image = image or _smallest_image(client)
        reasons, hidden = (tuple(gpu.reason for gpu in refused if gpu.hidden is hides) for hides in (False, True))
        visible = limits(gpus, refused, os.environ)
        yield Scene(
            gpus,
            why,
            reasons,
            _kernel_module(),
            client,
            no_engine,
            info,
            test_image,
            base_image,
            hidden,
            visible,
            clocks=tuple(clocks.undo()) if gpus else (),
            out=out,
            engine=engine,
        )
    finally:
        if client is not None:
            client.close()


def _kernel_module() -> str | None:
    with contextlib.suppress(OSError):
        match = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
        return match.group(1) if match else None
    return None


def _smallest_image(client: Any | None) -> str | None:
    """The project's smallest image on this machine: a container of it starts fastest."""
    if client is None:
        return None
    ours = client.images.list(filters={"label": "dlbench.image"}) or client.images.list(name="dlbench/base")
    ours.sort(key=lambda image: int(image.attrs.get("Size") or 0))
    return str(ours[0].id) if ours else None
