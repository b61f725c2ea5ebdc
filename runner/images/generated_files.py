"""Files that follow from the catalog: compose.gpu.yml, docker-bake.json, the tables in docs, an image's SBOM.

The first three are written by `runner images files`; a test says when they are out of step. CI asks for the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench import identity
from runner.catalog.architectures import X86_64, by_name, holds_on
from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import CatalogError, Image, read_pins
from runner.catalog.workloads import adapters, load_workloads
from runner.errors import naming
from runner.images.absent import compiled_page
from runner.images.documents import documents
from runner.images.recipe import SharedLayer, build_arguments, shared_layers
from runner.images.tried import PAGE, offered, page_text
from runner.paths import PROJECT

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
