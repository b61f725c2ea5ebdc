"""What the files of a run are called."""

from __future__ import annotations

import re
from pathlib import Path

# The stem of the files of many repeats together.
_PACK = re.compile(r".+\.p[1-9][0-9]*")


def run_folder(name: str, out: Path) -> Path:
    """The folder of a run that is given by its id below `out`, or by its folder."""
    return out / name if (out / name).is_dir() else Path(name)


def file_name(cell_id: str, repeat: int) -> str:
    """The stem of every file of one repeat of a cell."""
    return f"{cell_id}.r{repeat}"


def is_pack(path: Path) -> bool:
    """Whether a file of a table is one of many repeats together."""
    return _PACK.fullmatch(path.stem) is not None


def files_of_cells(folder: Path) -> list[Path]:
    """The files with the rows of the repeats of a run, packed or not. While files are put together a repeat may be in two of them."""
    return [path for path in sorted((folder / "cells").glob("*.parquet")) if path.stem != "skipped"]


def singles_of(folder: Path) -> list[Path]:
    """The files of a table that are no packs."""
    return [path for path in sorted(folder.glob("*.parquet")) if not is_pack(path)]
