"""Files that follow from the catalog: compose.gpu.yml, docker-bake.json, the tables in docs, an image's SBOM.

The first three are written by `runner images files`; a test says when they are out of step. CI asks for the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench import identity
from runner.catalog import guarantees
from runner.catalog.architectures import X86_64, by_name, holds_on
from runner.catalog.frameworks import Framework, load_frameworks
from runner.catalog.images import CatalogError, Image, read_pins
from runner.catalog.workloads import Workload, adapters, load_workloads
from runner.errors import naming
from runner.images import compiled as compiled_page
from runner.images.lock_facts import cuda_alone
from runner.images.recipe import SharedLayer, build_arguments, layer_bytes, shared_layers
from runner.images.tried import PAGE, offered, page_text
from runner.paths import PROJECT
from runner.results.known_issues import ABOVE_ALL, load_known_issues

# The tables in docs that follow from the catalog: which framework computes what, and which images it has.

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


COMPOSE = PROJECT / "compose.gpu.yml"
BAKE = PROJECT / "images" / "docker-bake.json"

# The default workload of a service: the first of these that its framework has, else the first by name.
_WORKLOADS = ("cnn-cifar10", "resnet50-features", "ops")

_SERVICE = """\
  {name}:
    <<: *cell
    image: dlbench/{name}:latest
    profiles: [{profiles}]
    environment: *{accelerator}-environment
    volumes: ["cache-{name}:/cache", "${{DLBENCH_DATA:-data}}:/data:ro"]
    command: [run, {workload}, --framework, {framework}, --precision, fp32, --preset, quick, --device, {accelerator}]
"""


def compose_text(images: Iterable[Image], now: str) -> str:
    """compose.gpu.yml with one service and one cache an image. The text before the services is kept."""
    head, _, rest = now.partition("\nservices:\n")
    if "\nvolumes:\n" not in rest:
        raise CatalogError(
            f"{COMPOSE}: it has no `services:` followed by `volumes:`; take both back from the repository"
        )
    images, computed = list(images), adapters()
    services = "\n".join(_service(image, computed) for image in images)
    # No image's cells see what another image's cells left.
    volumes = "".join(f"  cache-{image.name}:\n" for image in images)
    return f"{head}\nservices:\n{services}\nvolumes:\n  data:\n{volumes}"


def _service(image: Image, computed: Collection[tuple[str, str]]) -> str:
    profiles = ", ".join((*image.frameworks, image.accelerator))
    framework = image.frameworks[0]
    own = sorted(module.replace("_", "-") for name, module in computed if name == framework)
    if not own:
        raise CatalogError(
            f"{image.folder / 'image.toml'}: frameworks: {framework} has no adapter; write one in bench/frameworks/{framework}"
        )
    # Some frameworks train no network: they have a workload of inference.
    workload = next((name for name in _WORKLOADS if name in own), own[0])
    text = _SERVICE.format(
        name=image.name, profiles=profiles, accelerator=image.accelerator, framework=framework, workload=workload
    )
    return text + ("    deploy: *gpu\n" if image.accelerator == "cuda" else "")


def bake_text(images: Iterable[Image]) -> str:
    """docker-bake.json for `docker buildx bake -f images/docker-bake.json torch`, run in the project's folder.

    A target an image, a group a framework, and one of the images that run on arm64 as well. Labels that follow from the bench are not in
    it: the runner takes such an image for one of other inputs, and builds its own.
    """
    images = list(images)
    targets: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    for image in images:
        name = _target(image.name)
        architectures = [each.docker for each in map(by_name, holds_on(image)) if each not in (None, X86_64)]
        for group in (*image.frameworks, image.accelerator, *architectures):
            groups.setdefault(_target(group), []).append(name)
        targets |= _common_targets(image)
        targets[name] = {
            "context": ".",
            "dockerfile": "images/Dockerfile",
            "contexts": {"dlbench/base": f"target:{_below_target(image)}"},
            "args": {"BASE": "dlbench/base"} | build_arguments(image),
            "labels": {
                "org.opencontainers.image.title": image.name,
                "org.opencontainers.image.version": image.framework_version,
                "dlbench.lock_sha256": image.lock_sha256,
            },
            "tags": [f"${{REGISTRY}}/{image.name}:latest"],
        }
    tested = [_target(image.name) for image in images if image.accelerator == "cpu" and image.untested is None]
    file = {
        "variable": {"REGISTRY": {"default": "dlbench"}},
        # The default group of `docker buildx bake`: the tested CPU images, as `runner images build` has it.
        "group": {"default": {"targets": tested}}
        | {name: {"targets": targets} for name, targets in sorted(groups.items())},
        "target": targets,
    }
    return json.dumps(file, indent=1) + "\n"


def _common_targets(image: Image) -> dict[str, Any]:
    """The targets below the image's: the common layers, Julia or NVIDIA's wheels on them, Python where the base brings CUDA and none."""
    common: dict[str, Any] = {"context": ".", "dockerfile": "Dockerfile.base", "args": {"BASE": image.base_reference}}
    if image.julia:
        with_julia = {
            "context": ".",
            "dockerfile": "images/Dockerfile.julia",
            "contexts": {"dlbench/base": f"target:{_base_target(image)}"},
            "args": {"BASE": "dlbench/base", "IMAGE": image.name, "JULIA": image.julia},
        }
        return {_base_target(image): common, _julia_target(image): with_julia}
    if image.cuda_from != "base":
        return {_base_target(image): common} | _nvidia_targets(image)
    python = _target(f"python-on-{image.base}")
    below = {
        "context": ".",
        "dockerfile": "images/Dockerfile.cuda",
        "args": {"BASE": image.base_reference, "PYTHON": image.python},
    }
    common |= {"contexts": {"dlbench/cuda": f"target:{python}"}, "args": {"BASE": "dlbench/cuda"}}
    return {python: below, _base_target(image): common}


def _nvidia_targets(image: Image) -> dict[str, Any]:
    """The layers of NVIDIA's wheels, each on the one before. Images with the same layer on the same base have one target for it."""
    index, below, targets = {"EXTRA_INDEX": image.extra_index} if image.extra_index else {}, _base_target(image), {}
    for layer in shared_layers(image):
        name = _nvidia_target(image, layer)
        targets[name] = {
            "context": ".",
            "dockerfile": "images/Dockerfile.nvidia",
            "contexts": {"dlbench/base": f"target:{below}"},
            "args": {"BASE": "dlbench/base", "WHEELS": layer.argument} | index,
        }
        below = name
    return targets


def _below_target(image: Image) -> str:
    """The base of the image's own target."""
    if image.julia:
        return _julia_target(image)
    layers = shared_layers(image)
    return _nvidia_target(image, layers[-1]) if layers else _base_target(image)


def _nvidia_target(image: Image, layer: SharedLayer) -> str:
    return _target(f"nvidia-{layer.digest}-on-{image.base}")


def _base_target(image: Image) -> str:
    return _target(f"base-{image.base}")


def _julia_target(image: Image) -> str:
    return _target(f"julia-for-{image.name}")


def _target(name: str) -> str:
    """A name that bake takes: letters, digits, - and _."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def write(images: Iterable[Image]) -> list[Path]:
    """Write the files that are kept in the repository; returns those that changed."""
    changed = _out_of_step(list(images))
    for path, text in changed.items():
        with naming(path):
            path.write_text(text, encoding="utf-8")
    return list(changed)


def out_of_step(images: Iterable[Image]) -> list[tuple[Path, str]]:
    """The files that are not what the catalog makes of them, and what to do."""
    again = "it is not what the catalog makes of it; `runner images files` writes it again"
    return [(path, again) for path in _out_of_step(list(images))]


def _out_of_step(images: list[Image]) -> dict[Path, str]:
    """The files that are not as they should be -> what they should hold."""
    frameworks, workloads = load_frameworks(), load_workloads()
    checks = [(image.name, *check) for image in images for check in offered(image, frameworks, workloads.values())]
    with identity.unchanging():
        made = {
            COMPOSE: compose_text(images, COMPOSE.read_text(encoding="utf-8")),
            BAKE: bake_text(images),
            **documents(images, frameworks, workloads),
            PAGE: page_text(images, checks, compiled_page.column),
            compiled_page.PAGE: compiled_page.page_text(images),
        }
    return {path: text for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text}


def sbom(image: Image, base: str, debian: Mapping[str, str] | None = None) -> str:
    """The packages of the image's locks on this base image, as SPDX 2.3 JSON. The same image gives the same bytes.

    `debian` is every package of the distribution that the built image holds, with its version. Without, those that image.toml asks for
    are named, without a version: the lock does not fix it.
    """
    packages = [
        _package(pin.name, pin.version, f"pkg:pypi/{pin.name}@{quote(pin.version)}")
        for path in image.locks
        for pin in read_pins(path)
    ]
    found = dict(debian or dict.fromkeys(image.debian))
    packages += [
        _package(name, version, f"pkg:deb/debian/{quote(name)}" + (f"@{quote(version)}" if version else ""))
        for name, version in sorted(found.items())
    ]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image.name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{image.name}-{image.lock_sha256}",
        "creationInfo": {"created": f"{image.locked}T00:00:00Z", "creators": ["Tool: dlbench-matrix"]},
        "comment": f"The packages that the locks of {image.name} install (sha256 {image.lock_sha256}) on {base}.",
        "documentDescribes": [package["SPDXID"] for package in packages],
        "packages": packages,
    }
    return json.dumps(document, indent=1) + "\n"


def _package(name: str, version: str | None, purl: str) -> Mapping[str, Any]:
    """One package of an SPDX document, known by its package URL."""
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
    return {
        "SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', purl.removeprefix('pkg:'))}",
        "name": name,
        **({"versionInfo": version} if version else {}),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "externalRefs": [reference],
    }
