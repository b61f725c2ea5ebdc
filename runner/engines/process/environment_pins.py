"""The packages of an environment beside the pins of a lock: an environment is believed by its content, not by a marker."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name, canonicalize_version

from runner.catalog.images import read_pins

# The folder that an installer leaves for each package: NAME-VERSION, and of old ones the Python, too.
_FOLDER = re.compile(r"^([^-]+)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info$")


def difference(environment: Path, locks: Iterable[Path]) -> str | None:
    """A clause on the first package that an environment has otherwise than its locks say; None where it has them all.

    It lists one folder, so it takes some ten milliseconds. Files that are missing within a package are not seen.
    """
    installed: dict[str, str] = {}
    for entry in environment.glob("lib/python3*/site-packages/*-info"):
        if named := _FOLDER.match(entry.name):
            installed[canonicalize_name(named[1])] = canonicalize_version(named[2])
    for lock in locks:
        for pin in read_pins(lock):
            version = canonicalize_version(pin.version)
            if pin.name not in installed:
                return f"{pin.name} {version} is not in it"
            if installed[pin.name] != version:
                return f"its {pin.name} is {installed[pin.name]}, and the lock has {version}"
    return None
