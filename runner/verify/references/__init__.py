"""Numbers to hold a measurement against: those of the founding documents, and those measured with this project."""

from __future__ import annotations

from pathlib import Path

# A saved reference is a file of that name.
SUFFIX = ".reference.parquet"


def files(folder: Path) -> list[Path]:
    """The files of the saved references in a folder, without the `._NAME` that a Mac leaves beside NAME.

    What is in them takes much longer to load.
    """
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("._"))
