"""The one writer of pins: an image's requirements.lock as of a date, and the digest of its base image.

uv resolves for the platform that the images have, Linux x86_64 with glibc 2.28 or newer. Wheels only: nothing is built
while an image is, save what `source_builds` names, whose pins go into a second file, sources.lock. The date makes it
repeatable: what was uploaded later does not exist. A lock holds names, versions and hashes; no index, no host, no path of
the machine that made it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Collection, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from runner.catalog.images import CatalogError, Image, read_pins, requirements_digest
from runner.errors import UserError
from runner.paths import find_program
from runner.results import store

if TYPE_CHECKING:
    from docker import DockerClient

PLATFORM = "x86_64-manylinux_2_28"

# What old source archives need to tell their requirements: newer ones have no pkg_resources.
_BUILD_CONSTRAINTS = "setuptools<81\n"


class LockError(UserError):
    """A lock that could not be made; the message says why and what to do."""


def make_lock(image: Image, day: date, say: Callable[[str], None]) -> Path:
    """Write the image's lock as of a day, and the day into image.toml. Returns the lock's path. Raises LockError."""
    uv = find_program("uv")
    if uv is None:
        raise LockError("locks are made by uv, which is not here; `pip install uv`")
    constraints = image.folder / "build-constraints.part"
    command = [
        *(uv, "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate", "--generate-hashes"),
        *("--only-binary", ":all:", "--python-platform", PLATFORM, "--python-version", image.python),
        *(word for name in image.source_builds for word in ("--no-binary", name)),
        *("--build-constraints", str(constraints)),
        *("--exclude-newer", day.isoformat(), *_site_options(), str(image.folder / "requirements.in")),
    ]
    say(f"resolving {image.name} as of {day}")
    constraints.write_text(_BUILD_CONSTRAINTS)
    try:
        ended = _run(command)
        if ended.returncode and image.extra_index:
            say(f"once more with {image.extra_index}")
            ended = _run([*command, "--extra-index-url", image.extra_index, "--index-strategy", "unsafe-best-match"])
    finally:
        constraints.unlink()
    if ended.returncode:
        raise LockError(f"{image.folder / 'requirements.in'} cannot be resolved as of {day}:\n{ended.stderr.strip()}")
    version = subprocess.run([uv, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    wheels, sources = split_pins(ended.stdout, image.source_builds)
    _write_lock(image.lock_path, lock_text(image, day, version, wheels))
    if sources:
        _write_lock(image.sources_path, lock_text(image, day, version, sources))
    else:
        image.sources_path.unlink(missing_ok=True)
    write_seal(image)
    toml = image.folder / "image.toml"
    _rewrite(toml, re.sub(r"^locked\s*=\s*\S+", f"locked = {day}", toml.read_text(encoding="utf-8"), flags=re.M))
    return image.lock_path


def split_pins(resolved: str, source_builds: Collection[str]) -> tuple[str, str]:
    """uv's pins in two: what is installed from wheels, and what is built. A pin begins at a line's start."""
    named = {canonicalize_name(name) for name in source_builds}
    parts: tuple[list[str], list[str]] = ([], [])
    for pin in re.split(r"^(?=\S)", resolved, flags=re.M):
        parts[canonicalize_name(re.split(r"[=\s;]", pin, maxsplit=1)[0]) in named].append(pin)
    return "".join(parts[0]), "".join(parts[1])


def _write_lock(path: Path, text: str) -> None:
    """Write a lock whole, once it has been read back. Raises LockError."""
    aside = path.with_suffix(".part")
    try:
        aside.write_text(text)
        read_pins(aside)
        aside.replace(path)
    except CatalogError as error:
        raise LockError(str(error)) from None
    finally:
        aside.unlink(missing_ok=True)


def write_seal(image: Image) -> None:
    """Write digests of requirements.in and of each pin beside the locks, for `runner images check`."""
    pins = [pin for path in image.locks for pin in read_pins(path)]
    lines = [
        f"# Made with the lock of {image.name}; `runner images check` holds requirements.in and every pin against it.",
        f"requirements.in {requirements_digest(image.folder / 'requirements.in')}",
        *(f"{pin.name}=={pin.version} {pin.seal}" for pin in pins),
    ]
    store.write_bytes(image.seal_path, ("\n".join(lines) + "\n").encode())


def pin_base(image: Image, client: DockerClient) -> str:
    """Ask the base image's registry for the digest of its tag, and write it into image.toml. Raises LockError."""
    from runner.images.docker_client import DockerError, registry_digest

    try:
        digest = registry_digest(client, image.base)
    except DockerError as error:
        raise LockError(f"{image.name}: the registry of {image.base} does not tell its digest: {error.said}") from error
    toml = image.folder / "image.toml"
    text = re.sub(r"^base_digest\s*=.*\n", "", toml.read_text(encoding="utf-8"), flags=re.M)
    pinned = f'base = "{image.base}"\nbase_digest = "{digest}"'
    _rewrite(toml, re.sub(r"^base\s*=.*$", pinned, text, flags=re.M))
    return digest


def pin_published(image: Image, reference: str) -> None:
    """Write registry/name@digest of the built image into image.toml."""
    toml = image.folder / "image.toml"
    text = re.sub(r"^published\s*=.*\n", "", toml.read_text(encoding="utf-8"), flags=re.M)
    _rewrite(toml, re.sub(r"^(base\s*=.*)$", rf'\1\npublished = "{reference}"', text, flags=re.M))


def lock_text(image: Image, day: date, uv_version: str, resolved: str) -> str:
    """The lock file's text: a header that says how to make it again, and uv's pins without its options and comments."""
    pins = [
        line
        for line in resolved.splitlines()
        if line.strip() and not line.lstrip().startswith("#") and not re.match(r"--?\w", line)
    ]
    header = (
        f"# Made by `runner images lock {image.name} --date {day}` with uv {uv_version} "
        f"for Python {image.python}, {PLATFORM}.\n"
        "# Do not edit: change requirements.in and make it again.\n"
    )
    return header + "\n".join(pins) + "\n"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _site_options() -> list[str]:
    """The site's own package sources, as pip knows them in the environment: uv does not read pip's settings."""
    options: list[str] = []
    for variable, option in (
        ("PIP_FIND_LINKS", "--find-links"),
        ("PIP_INDEX_URL", "--default-index"),
        ("PIP_EXTRA_INDEX_URL", "--extra-index-url"),
    ):
        for value in os.environ.get(variable, "").split():
            options += [option, value]
    return options


def _rewrite(path: Path, text: str) -> None:
    if text != path.read_text(encoding="utf-8"):
        store.write_bytes(path, text.encode())
