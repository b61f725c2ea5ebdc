"""The tables in docs that follow from the catalog: which framework computes what, and which images it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runner.catalog import guarantees
from runner.catalog.architectures import holds_on
from runner.catalog.frameworks import Framework
from runner.catalog.images import CatalogError, Image
from runner.catalog.workloads import Workload
from runner.images.lock_facts import cuda_alone
from runner.images.recipe import layer_bytes
from runner.paths import PROJECT
from runner.results.vendors.known_issues import ABOVE_ALL, load_known_issues

WORKLOADS = PROJECT / "docs" / "workloads.md"
IMAGES = PROJECT / "docs" / "images.md"
ENGINES = PROJECT / "docs" / "engines.md"

# A GPU image is called after its version and CUDA: torch-2.9.1-cu128.
_VERSION = re.compile(r"-(\d[\w.]*-cu\d+)$")


def documents(
    images: Sequence[Image], frameworks: Mapping[str, Framework], workloads: Mapping[str, Workload]
) -> dict[Path, str]:
    """Each document with its table made anew between the marks. Raises CatalogError where a mark is missing."""
    tables: dict[Path, dict[str, Iterable[Iterable[str]]]] = {
        ENGINES: {"engines": guarantees.rows()},
        WORKLOADS: {"workloads": _workloads(frameworks, workloads)},
        IMAGES: {
            "images": _images(images, frameworks),
            "cuda alone": _cuda_alone(images),
            "known issues": _known_issues(images),
            "architectures": _architectures(images),
            "gigabytes": _gigabytes(images),
            "shared": _shared(images),
        },
    }
    return {path: _with_tables(path, of_path) for path, of_path in tables.items()}


def _with_tables(path: Path, tables: Mapping[str, Iterable[Iterable[str]]]) -> str:
    """The document as it is, with other rows between the marks of each table."""
    text = path.read_text(encoding="utf-8")
    for name, rows in tables.items():
        begin, end = f"<!-- {name}: made by `runner images files` -->\n", f"<!-- end of {name} -->"
        head, first, rest = text.partition(begin)
        _, last, tail = rest.partition(end)
        if not (first and last):
            raise CatalogError(
                f"{path}: the marks of the table {name!r} are missing; take both back from the repository"
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


def _cuda_alone(images: Iterable[Image]) -> Iterable[list[str]]:
    """A row for each pair of images between which CUDA alone changes."""
    yield ["CUDA", "from", "to", "the same in both"]
    yield ["---"] * 4
    for older, newer in cuda_alone(images):
        same = f"{older.frameworks[0]} {older.framework_version}, cuDNN {older.cudnn}" + (
            f", NCCL {older.nccl}" if older.nccl else ""
        )
        yield [f"{older.cuda} → {newer.cuda}", f"`{older.name}`", f"`{newer.name}`", same]


def _known_issues(images: Iterable[Image]) -> Iterable[list[str]]:
    """A row for each published fault, with the images that have it on some GPU that they serve."""
    yield ["known issue", "GPUs of capability", "touches", "images", "source"]
    yield ["---"] * 5
    images = [image for image in images if image.accelerator == "cuda"]
    for issue in load_known_issues():
        low, below = issue.capabilities
        until = "and newer" if below == ABOVE_ALL else f"to below {below}"
        names = [
            _named(image, image.name)
            for image in images
            if issue.is_of({"cuda": image.cuda, "cudnn": image.cudnn})
            and issue.is_on(str(image.min_compute_capability), str(image.max_compute_capability))
            and (not issue.cells or {one.framework for one in issue.cells}.intersection(image.frameworks))
        ]
        yield [
            issue.sentence,
            "all" if "capabilities" not in issue.model_fields_set else f"{low} {until}",
            issue.touches,
            ", ".join(names) or "none",
            f"[{issue.title}]({issue.url})",
        ]


def _architectures(images: Iterable[Image]) -> Iterable[list[str]]:
    """A row for each set of architectures that images run on."""
    yield ["runs on", "images"]
    yield ["---"] * 2
    names: dict[str, list[str]] = {}
    for image in images:
        names.setdefault(" and ".join(holds_on(image)), []).append(_named(image, image.name))
    yield from ([architectures, ", ".join(of_these)] for architectures, of_these in sorted(names.items()))


def _gigabytes(images: Iterable[Image]) -> Iterable[list[str]]:
    """Gigabytes of the wheels of all GPU images: each image by itself, and with the layers that they share."""
    registry: dict[tuple[str, ...], int] = {}
    engine: dict[tuple[str, str], int] = {}
    nvidia = others = count = 0
    for image in images:
        if image.accelerator != "cuda":
            continue
        count += 1
        layers = layer_bytes(image)
        nvidia += sum(layers.values())
        others += image.download_bytes - sum(layers.values())
        # A registry keeps a layer once, whatever lies below it; the engine keeps it once for all images with the same layers below it.
        registry |= {(image.base, *layer.pins): size for layer, size in layers.items()}
        engine |= {(image.base, layer.digest): size for layer, size in layers.items()}
    yield ["where", f"NVIDIA's wheels of the {count} GPU images", "all their wheels"]
    yield ["---", "---:", "---:"]
    kept = (nvidia, sum(registry.values()), sum(engine.values()))
    for where, size in zip(("without shared layers", "in a registry", "in an engine"), kept, strict=True):
        yield [where, f"{size / 1e9:.1f} GB", f"{(size + others) / 1e9:.1f} GB"]


def _shared(images: Iterable[Image]) -> Iterable[list[str]]:
    """A row a layer that several images share."""
    yield ["wheels in one layer", "GB", "the images that share it"]
    yield ["---", "---:", "---"]
    users: dict[tuple[str, ...], list[str]] = {}
    rows: dict[tuple[str, ...], list[str]] = {}
    for image in images:
        for layer, size in layer_bytes(image).items():
            key = (image.base, *layer.pins)
            users.setdefault(key, []).append(f"`{image.name}`")
            rows[key] = [
                ", ".join(wheel.removeprefix("nvidia-").replace("==", " ") for wheel in layer.wheels),
                f"{size / 1e9:.2f}",
            ]
    for key, names in users.items():
        if len(names) > 1:
            yield [*rows[key], ", ".join(names)]


def _by_title(frameworks: Mapping[str, Framework]) -> list[Framework]:
    return sorted(frameworks.values(), key=lambda framework: framework.title.casefold())


def _version(image: Image) -> str:
    match = _VERSION.search(image.name)
    return match[1] if match and not image.untested else image.name


def _named(image: Image, name: str) -> str:
    return f"`{name}`" + (" (**untested**)" if image.untested else "")
