"""The packages of an environment beside the pins of a lock: an environment is believed by its content, not by a marker."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name, canonicalize_version

_PIN = re.compile(r"^([A-Za-z0-9][^\s=]*)==([^\s;\\]+)", re.MULTILINE)

# The folder that an installer leaves for each package: NAME-VERSION, and of old ones the Python, too.
_FOLDER = re.compile(r"^([^-]+)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info$")


def pins(lock: Path) -> dict[str, str]:
    """The version of each package that a lock names, by its normalised name."""
    found = _PIN.findall(lock.read_text(encoding="utf-8"))
    return {canonicalize_name(name): canonicalize_version(version) for name, version in found}


def difference(environment: Path, locks: Iterable[Path]) -> str | None:
    """A clause on the first package that an environment has otherwise than its locks say; None where it has them all.

    It lists one folder, so it takes some ten milliseconds. Files that are missing within a package are not seen.
    """
    installed: dict[str, str] = {}
    for entry in environment.glob("lib/python3*/site-packages/*-info"):
        if named := _FOLDER.match(entry.name):
            installed[canonicalize_name(named[1])] = canonicalize_version(named[2])
    for lock in locks:
        for name, version in pins(lock).items():
            if name not in installed:
                return f"{name} {version} is not in it"
            if installed[name] != version:
                return f"its {name} is {installed[name]}, and the lock has {version}"
    return None
