"""Numbers to hold a measurement against: those of the founding documents, and those measured with this project."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

# A saved reference is a file of that name.
SUFFIX = ".reference.parquet"

# An index of references is a folder with this list of its devices, and a folder with its cells.
LIST, CELLS = "index.json", "cells"


def files(folder: Path) -> list[Path]:
    """The files of the saved references in a folder, without the `._NAME` that a Mac leaves beside NAME.

    What is in them takes much longer to load.
    """
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("._"))


def is_index(place: str) -> bool:
    """True if a place is an address of the web, or a folder that holds an index of references."""
    return is_address(place) or ((Path(place) / LIST).is_file() and (Path(place) / CELLS).is_dir())


def index_place(place: str) -> str:
    """The index whose page this is, as a browser shows its address; any other place as it is."""
    page = place.partition("#")[0] if is_address(place) else place
    return (page.removesuffix("index.html") or ".") if page.endswith("index.html") else page


def is_address(place: str) -> bool:
    return urlsplit(place).scheme in ("http", "https")
