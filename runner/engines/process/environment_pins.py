"""The packages of an environment beside the pins of a lock: an environment is believed by its content, not by a marker."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name, canonicalize_version

from runner.catalog.images import read_pins

# The folder that an installer leaves for each package: NAME-VERSION, and of old ones the Python, too.
_FOLDER = re.compile(r"^([^-]+)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info$")


# Installed by `venv` itself.
_OF_VENV = frozenset({"pip", "setuptools"})

# Of a RECORD: libraries with ten thousand files name the first of their code within it.
_HEAD_BYTES = 1 << 16


def difference(environment: Path, locks: Iterable[Path]) -> str | None:
    """A clause on the first package that an environment has otherwise than its locks say; None where it has them and no others.

    It lists one folder, and looks of each package for one file of each folder with code, so it takes some ten milliseconds. Other files
    that are missing within a package are not seen: `lost` looks for these.
    """
    installed: dict[str, tuple[str, Path]] = {}
    for entry in environment.glob("lib/python3*/site-packages/*-info"):
        if named := _FOLDER.match(entry.name):
            name = canonicalize_name(named[1])
            if name in installed:
                return f"it has {name} twice"
            installed[name] = canonicalize_version(named[2]), entry
    pins = [pin for lock in locks for pin in read_pins(lock)]
    for pin in pins:
        version = canonicalize_version(pin.version)
        if pin.name not in installed:
            return f"{pin.name} {version} is not in it"
        has, entry = installed[pin.name]
        if has != version:
            return f"its {pin.name} is {has}, and the lock has {version}"
        if lacking := _lacks(entry):
            return f"its {pin.name} lacks {lacking}"
    foreign = sorted(installed.keys() - {pin.name for pin in pins} - _OF_VENV)
    return f"it has {foreign[0]}, which the lock does not have" if foreign else None


def _lacks(entry: Path) -> str | None:
    """The first file of a package's code that its RECORD has and its environment lacks, of one for each folder with code."""
    try:
        with (entry / "RECORD").open("rb") as file:
            lines = file.read(_HEAD_BYTES).decode("utf-8", "replace").split("\n")[:-1]
    except OSError:
        # An .egg-info has none.
        return None if entry.suffix == ".egg-info" else "its RECORD"
    names = (line.partition(",")[0] for line in lines)
    code = [name for name in names if name.endswith((".py", ".so")) and not name.startswith(("/", "../", '"'))]
    first: dict[str, str] = {}
    for name in code:
        first.setdefault(name.partition("/")[0], name)
    return next((name for name in first.values() if not (entry.parent / name).exists()), None)


def lost(environment: Path) -> list[str]:
    """Every file that a package of an environment was installed with and that is not there any more. It looks at each: half a second.

    What Python compiles by itself is left out.
    """
    gone: list[str] = []
    for record in environment.glob("lib/python3*/site-packages/*.dist-info/RECORD"):
        with contextlib.suppress(OSError, csv.Error), record.open(newline="", errors="replace") as file:
            names = (row[0] for row in csv.reader(file) if row)
            gone += [name for name in names if not name.endswith(".pyc") and not (record.parents[1] / name).exists()]
    return gone
