"""Which repeats of a run have ended, and in which of its packs they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from runner.results import validate
from runner.results.on_disk.layout import file_name, is_pack, singles_of
from runner.results.on_disk.table_file import read_columns
from runner.results.on_disk.whole import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

# A runner may put files together while they are read: so often they are looked for again.
_MOST_LOOKS = 5

Found = TypeVar("Found")


def settled(folder: Path, look: Callable[[], Found]) -> Found:
    """What `look` finds in a run whose files a runner may put together meanwhile. Raises StoreError where one is gone each time."""
    for _ in range(_MOST_LOOKS):
        try:
            return look()
        except FileNotFoundError as error:
            gone = error
    name = Path(gone.filename).name
    raise StoreError(
        f"{folder}: {gone.filename} was there and is gone; restore it, or read the run again when nothing works on it, "
        f"or remove {name} from cells and --resume measures again what it held"
    )


def finished(folder: Path) -> dict[tuple[str, int], str]:
    """(cell id, repeat) -> status, of every repeat of a run that has ended. Raises StoreError."""
    return settled(folder, lambda: _finished(folder))


def _finished(folder: Path) -> dict[tuple[str, int], str]:
    # In this order: what is packed meanwhile is found in its pack.
    singles, packs = singles_of(folder / "cells"), packs_of(folder)
    statuses: dict[tuple[str, int], str] = {}
    for path in [*(packs.path("cells", pack) for pack in packs.names), *packs.others(singles)]:
        for cell, repeat, status in ended(path):
            statuses[cell, repeat] = status
    return statuses


@dataclass(frozen=True)
class Packs:
    """The packs of a run that count, and which of them has a repeat: by the stem that the repeat's own files had."""

    folder: Path
    names: Sequence[str]
    pack_of: Mapping[str, str]

    def path(self, table: str, pack: str) -> Path:
        return self.folder / table / f"{pack}.parquet"

    def others(self, paths: Iterable[Path]) -> list[Path]:
        """Those of some repeats' files that are in no pack."""
        return [path for path in paths if path.stem not in self.pack_of]

    def where(self, table: str, cell_id: str, repeat: int) -> Path:
        """The file that holds a table of a repeat, if the repeat has rows in it."""
        name = file_name(cell_id, repeat)
        return self.path(table, self.pack_of.get(name, name))


def packs_of(folder: Path) -> Packs:
    """The packs of the run in a folder. Raises StoreError, and FileNotFoundError where one is removed meanwhile."""
    pack_of: dict[str, str] = {}
    paths = sorted(path for path in (folder / "cells").glob("*.p[0-9]*.parquet") if is_pack(path))
    for path in paths:
        for cell, repeat, _ in ended(path):
            # Either of the two could be the true one.
            if (other := pack_of.setdefault(file_name(cell, repeat), path.stem)) != path.stem:
                other_path = path.with_name(f"{other}.parquet")
                raise StoreError(f"{other_path} and {path} hold the same repeat {repeat} of {cell}; remove one of them")
    return Packs(folder, tuple(path.stem for path in paths), pack_of)


def ended(path: Path) -> list[tuple[str, int, str]]:
    """(cell id, repeat, status) of the repeats in a file of cells. The skipped combinations are none. Raises StoreError."""
    import pyarrow as pa

    if path.stem == "skipped":
        return []
    try:
        rows = read_columns(path, ["cell_id", "repeat", "status"]).to_pylist()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        why = f"it cannot be read as a cells table ({error})"
        raise StoreError(f"{path}: {why}; restore it, or remove it and --resume measures that cell again") from None
    keys = [(row["cell_id"], row["repeat"], row["status"]) for row in rows]
    if len({key[:2] for key in keys}) < len(keys) or any(None in key[:2] for key in keys):
        raise StoreError(f"{path} holds a repeat twice, or one without a name; remove or restore it")
    return keys


def strange(path: Path, part: pa.Table, packs: Packs) -> str:
    """A repeat whose rows are in a file that is not its own; empty where there is none."""
    if not len(part) or path.stem == "skipped":
        return ""
    if is_pack(path):
        cells, repeats = part["cell_id"], part["repeat"]
        firsts = validate.first_of_each(part, ("cell_id", "repeat"))
        names = (file_name(cells[place].as_py(), repeats[place].as_py()) for place in map(int, firsts))
        return next((name for name in names if packs.pack_of.get(name) != path.stem), "")
    for cell in part["cell_id"].unique().to_pylist():
        for repeat in part["repeat"].unique().to_pylist():
            if file_name(cell, repeat) != path.stem:
                return file_name(cell, repeat)
    return ""
