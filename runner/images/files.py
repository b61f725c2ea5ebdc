"""Files that follow from the catalog: compose.gpu.yml, docker-bake.json, README's tables, CI's matrix, an image's SBOM.

The first three are written by `runner images files`; a test says when they are out of step. CI asks for the others.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench import identity
from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import CatalogError, Image, read_pins
from runner.catalog.workloads import load_workloads
from runner.images.readme import README, readme_text
from runner.images.recipe import build_arguments
from runner.paths import PROJECT

COMPOSE = PROJECT / "compose.gpu.yml"
BAKE = PROJECT / "images" / "docker-bake.json"

# What makes every image another one, when it changes. Of bench/frameworks/ an image holds its own frameworks only.
_IN_ALL = ("bench/", "Dockerfile.base", "images/Dockerfile", "runner/images/build.py", "runner/images/recipe.py")
_OF_SOME = "bench/frameworks/"

_SERVICE = """\
  {name}:
    <<: *cell
    image: dlbench/{name}:latest
    profiles: [{profiles}]
    environment: *{accelerator}-environment
    command: [run, cnn-cifar10, --framework, {framework}, --precision, fp32, --preset, quick, --device, {accelerator}]
"""


def compose_text(images: Iterable[Image], now: str) -> str:
    """compose.gpu.yml with one service an image. The text before and after the services is kept."""
    head, _, rest = now.partition("\nservices:\n")
    _, _, tail = rest.partition("\nvolumes:\n")
    if not tail:
        raise CatalogError(
            f"{COMPOSE}: it has no `services:` followed by `volumes:`; take both back from the repository"
        )
    return f"{head}\nservices:\n" + "\n".join(_service(image) for image in images) + f"\nvolumes:\n{tail}"


def _service(image: Image) -> str:
    profiles = ", ".join((*image.frameworks, image.accelerator))
    text = _SERVICE.format(
        name=image.name, profiles=profiles, accelerator=image.accelerator, framework=image.frameworks[0]
    )
    return text + ("    deploy: *gpu\n" if image.accelerator == "cuda" else "")


def bake_text(images: Iterable[Image]) -> str:
    """docker-bake.json for `docker buildx bake -f images/docker-bake.json torch`, run in the project's folder.

    A target an image, a group a framework. Labels that follow from the bench are not in it: the runner takes such an image
    for one of other inputs, and builds its own.
    """
    targets: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    for image in images:
        name = _target(image.name)
        for group in (*image.frameworks, image.accelerator):
            groups.setdefault(_target(group), []).append(name)
        targets |= _common_targets(image)
        targets[name] = {
            "context": ".",
            "dockerfile": "images/Dockerfile",
            "contexts": {"dlbench/base": f"target:{_julia_target(image) if image.julia else _base_target(image)}"},
            "args": {"BASE": "dlbench/base"} | build_arguments(image),
            "labels": {
                "org.opencontainers.image.title": image.name,
                "org.opencontainers.image.version": image.framework_version,
                "dlbench.lock_sha256": image.lock_sha256,
            },
            "tags": [f"${{REGISTRY}}/{image.name}:latest"],
        }
    file = {
        "variable": {"REGISTRY": {"default": "dlbench"}},
        "group": {name: {"targets": targets} for name, targets in sorted(groups.items())},
        "target": targets,
    }
    return json.dumps(file, indent=1) + "\n"


def _common_targets(image: Image) -> dict[str, Any]:
    """The targets below the image's: the common layers, Julia on them, Python where the base brings CUDA and no interpreter."""
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
        return {_base_target(image): common}
    python = _target(f"python-on-{image.base}")
    below = {
        "context": ".",
        "dockerfile": "images/Dockerfile.cuda",
        "args": {"BASE": image.base_reference, "PYTHON": image.python},
    }
    common |= {"contexts": {"dlbench/cuda": f"target:{python}"}, "args": {"BASE": "dlbench/cuda"}}
    return {python: below, _base_target(image): common}


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
        path.write_text(text, encoding="utf-8")
    return list(changed)


def out_of_step(images: Iterable[Image]) -> list[tuple[Path, str]]:
    """The files that are not what the catalog makes of them, and what to do."""
    again = "it is not what the catalog makes of it; `runner images files` writes it again"
    return [(path, again) for path in _out_of_step(list(images))]


def _out_of_step(images: list[Image]) -> dict[Path, str]:
    """The files that are not as they should be -> what they should hold."""
    readme = readme_text(README.read_text(encoding="utf-8"), images, load_frameworks(), load_workloads())
    made = {
        COMPOSE: compose_text(images, COMPOSE.read_text(encoding="utf-8")),
        BAKE: bake_text(images),
        README: readme,
    }
    return {path: text for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text}


def changed_images(images: Iterable[Image], since: str) -> list[Image]:
    """The images that a build since a git revision would make anew. Raises CatalogError for a revision that git does not know."""
    if since.startswith("-"):
        raise CatalogError(f"--changed-since {since}: it is no commit; name one that is fetched")
    ended = subprocess.run(
        ["git", "-C", str(PROJECT), "diff", "--name-only", since, "--"], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise CatalogError(f"--changed-since {since}: git says: {ended.stderr.strip()}; name a commit that is fetched")
    return select_changed(images, ended.stdout.splitlines())


def select_changed(images: Iterable[Image], paths: Iterable[str]) -> list[Image]:
    """The images that changed files concern; all of them where the files are in all."""
    changed = list(paths)
    everything = any(
        path == part or (part[-1] == "/" and path.startswith(part) and not path.startswith(_OF_SOME))
        for path in changed
        for part in _IN_ALL
    )
    frameworks = {Path(path).parts[2] for path in changed if path.startswith(_OF_SOME)}
    folders = {Path(path).parts[1] for path in changed if path.startswith("images/") and path.count("/") > 1}
    below = {name: f"images/Dockerfile.{name}" in changed for name in ("cuda", "julia")}
    return [
        image
        for image in images
        if everything
        or image.name in folders
        or not frameworks.isdisjoint(identity.folders(image.frameworks))
        or (below["cuda"] and image.cuda_from == "base")
        or (below["julia"] and image.julia)
    ]


def sbom(image: Image) -> str:
    """What the image's locks install, as SPDX 2.3 JSON. The same lock gives the same bytes.

    The distribution's packages are named without a version: the lock does not fix it, a scan of the built image finds it.
    """
    packages = [
        _package(pin.name, pin.version, f"pkg:pypi/{pin.name}@{quote(pin.version)}")
        for path in image.locks
        for pin in read_pins(path)
    ]
    packages += [_package(name, None, f"pkg:deb/debian/{name}") for name in sorted(image.debian)]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image.name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{image.name}-{image.lock_sha256}",
        "creationInfo": {"created": f"{image.locked}T00:00:00Z", "creators": ["Tool: dlbench-matrix"]},
        "comment": f"What the locks of {image.name} install (sha256 {image.lock_sha256}) on {image.base_reference}.",
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
