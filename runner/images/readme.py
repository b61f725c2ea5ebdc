"""The tables in README.md that follow from the catalog: which framework computes what, and which images it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from runner.catalog.frameworks import Framework
from runner.catalog.images import CatalogError, Image
from runner.catalog.workloads import Workload
from runner.paths import PROJECT

README = PROJECT / "README.md"

# A GPU image is called after its version and CUDA: torch-2.9.1-cu128.
_VERSION = re.compile(r"-(\d[\w.]*-cu\d+)$")


def readme_text(
    text: str, images: Sequence[Image], frameworks: Mapping[str, Framework], workloads: Mapping[str, Workload]
) -> str:
    """README.md with its tables made anew between their marks. Raises CatalogError where a mark is missing."""
    tables = {"workloads": _workloads(frameworks, workloads), "images": _images(images, frameworks)}
    for name, rows in tables.items():
        begin, end = f"<!-- {name}: made by `runner images files` -->\n", f"<!-- end of {name} -->"
        head, first, rest = text.partition(begin)
        _, last, tail = rest.partition(end)
        if not (first and last):
            raise CatalogError(
                f"{README}: the marks of the table {name!r} are missing; take both back from the repository"
            )
        text = head + begin + "".join(f"| {' | '.join(row)} |\n" for row in rows) + end + tail
    return text


def _workloads(frameworks: Mapping[str, Framework], workloads: Mapping[str, Workload]) -> Iterable[list[str]]:
    """A row a framework, a column a workload that has adapters of its own."""
    columns = [workload for workload in workloads.values() if workload.computes is None]
    yield ["framework", *(f"`{workload.name}`" for workload in columns)]
    yield ["---"] * (len(columns) + 1)
    for framework in _by_title(frameworks):
        mark = "untested" if framework.untested else "yes"
        yield [framework.title, *(mark if workload.module in framework.modules else "" for workload in columns)]


def _images(images: Sequence[Image], frameworks: Mapping[str, Framework]) -> Iterable[list[str]]:
    """A row a framework: how else it compiles, whether it uses several devices, and the images that hold it."""
    yield [
        "framework",
        "modes beside the default",
        "several devices",
        "images for a CPU",
        "images for GPUs: version and CUDA",
    ]
    yield ["---"] * 5
    for framework in _by_title(frameworks):
        own = [image for image in images if framework.name in image.frameworks]
        yield [
            framework.title,
            ", ".join(f"`{mode}`" for mode in framework.modes if mode != "default"),
            "yes" if framework.parallel else "",
            ", ".join(_named(image, image.name) for image in own if image.accelerator == "cpu"),
            ", ".join(_named(image, _version(image)) for image in own if image.accelerator == "cuda"),
        ]


def _by_title(frameworks: Mapping[str, Framework]) -> list[Framework]:
    return sorted(frameworks.values(), key=lambda framework: framework.title.casefold())


def _version(image: Image) -> str:
    match = _VERSION.search(image.name)
    return match[1] if match and not image.untested else image.name


def _named(image: Image, name: str) -> str:
    return f"`{name}`" + (" (**untested**)" if image.untested else "")
