"""Cells in an interpreter that is there already, with whatever frameworks it has: to measure your own installation."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from runner.catalog.architectures import emulated
from runner.catalog.images import Image, Precision, load_catalog
from runner.engines.base import Settings
from runner.engines.process import installed, process
from runner.errors import EngineError
from runner.paths import PROJECT


class HostImage(Image):
    """The interpreter with one of its frameworks, as an image, so that plan and store need no second notion."""

    installed_sha256: str

    @property
    def lock_sha256(self) -> str:
        """sha256 (hex) of the list of installed packages: there is no lock."""
        return self.installed_sha256


def precisions_of(framework: str, version: str, accelerator: str, catalog: Iterable[Image]) -> tuple[Precision, ...]:
    """The precisions of an installed framework: those of the catalog's image of that framework, on the same kind of device.

    It is the oldest image that is as new as the installed framework, else the newest. If the catalog has none: fp32.
    """
    images = [image for image in catalog if framework in image.frameworks and image.accelerator == accelerator]
    images.sort(key=lambda image: Version(image.framework_version))
    try:
        as_new = [image for image in images if Version(image.framework_version) >= Version(version)]
    except InvalidVersion:
        as_new = []
    return (*as_new[:1], *images[-1:])[0].precisions if images else ("fp32",)


def not_on_cpu_of(framework: str, version: str, catalog: Iterable[Image]) -> dict[str, str]:
    """The workloads that this release of a framework does not compute on a CPU, by the catalog's image of the same release."""
    release = version.split(".")[:2]
    for image in catalog:
        if framework in image.frameworks and image.framework_version.split(".")[:2] == release and image.not_on_cpu:
            return image.not_on_cpu
    return {}


def _accelerator(entry: Mapping[str, Any], gpus: bool) -> Literal["cpu", "cuda"]:
    """The device that a listed framework is planned for: a build with CUDA for GPUs where there are some, any other for the CPU."""
    kinds = entry.get("device_kinds")
    return "cuda" if gpus and isinstance(kinds, list) and "cuda" in kinds else "cpu"


class HostEngine(installed.InterpreterEngine):
    """The engine `host`. By default it measures the interpreter that the runner runs in."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(str((settings and settings.python) or sys.executable))

    def unavailable(self) -> str | None:
        try:
            if self._frameworks:
                return emulated(self.packages["machine"])
        except EngineError as error:
            return str(error)
        none = f"{self._python} has none of the frameworks; install one there"
        return f"{'; '.join(self._listed[1]) or none}, or name another interpreter with --python"

    def images(self, gpus: bool) -> dict[str, Image]:
        """An image for each framework of the interpreter, by name. `gpus`: use GPUs where a framework can."""
        packages = self.packages
        digest = installed.lock_sha256(packages)
        catalog = load_catalog().values()
        images: dict[str, Image] = {}
        for entry in self._frameworks:
            version = str(entry["version"])
            framework, accelerator = str(entry["framework"]), _accelerator(entry, gpus)
            name = installed.image_name(framework, version)
            images[name] = HostImage.model_construct(
                name=name,
                folder=PROJECT,
                frameworks=(framework,),
                framework_version=version,
                python=".".join(packages["python"].split(".")[:2]),
                accelerator=accelerator,
                base="host",
                precisions=precisions_of(framework, version, accelerator, catalog),
                not_on_cpu=not_on_cpu_of(framework, version, catalog),
                locked=date.today(),
                download_gb=0.0,
                installed_sha256=digest,
            )
        return images

    def notes(self, gpus: bool) -> tuple[str, ...]:
        """Warnings: cells are not isolated, what a framework lacks, and those planned for the CPU though there is a GPU."""
        without = [str(entry["framework"]) for entry in self._frameworks if _accelerator(entry, gpus) == "cpu"]
        on_cpu = f"{', '.join(without)}: on the CPU, since {self._python} has no build with CUDA"
        return (process.NOT_WALLED_IN, *self._listed[1], *([on_cpu] if gpus and without else []))

    def unfit(self, image: Image) -> str | None:
        """Only this interpreter's own images can run in it."""
        return None if isinstance(image, HostImage) else f"the engine `host` runs what {self._python} has, not images"

    @functools.cached_property
    def _listed(self) -> tuple[list[dict[str, Any]], list[str]]:
        return installed.frameworks(self._python)

    @property
    def _frameworks(self) -> list[dict[str, Any]]:
        return self._listed[0]
