"""Puts the files of many repeats together: a run over a thousand nodes has millions of files, and nobody opens millions of files.

A pack is a file of each table, and an archive of the events and of the logs. All of them are written first, `cells` last: then the pack
counts, and the repeats' own files do not count any more, so they are removed. A runner that is killed anywhere in between has lost nothing
and counts nothing twice: clear_up removes what it left.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from runner.results import store
from runner.results.on_disk.packed import strange
from runner.results.on_disk.table_file import limits, to_bytes
from runner.results.parquet import bounded
from runner.results.parquet.schema import TABLES, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

# The most that a pack holds. A reader takes no larger files (runner.results.on_disk.table_file.limits), and reserves for a column of
# lists what all of its values would take if each were as long as the longest may be.
MOST_REPEATS = 400
_MOST_ROWS, _MOST_BYTES = 150_000, 48 << 20

# What is kept beside the tables: folder -> how its files end.
_BESIDE = {"events": ".jsonl", "logs": ".log"}

_NUMBER = re.compile(r".+\.p([1-9][0-9]*)")
_LONGEST_NODE = 100


@dataclass(frozen=True)
class _Repeat:
    """One repeat: the stem of its files, and what is in them."""

    name: str
    tables: Mapping[str, pa.Table]
    beside: Mapping[str, bytes]

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Of each table and of what lies beside them: rows and bytes."""
        sizes = {table: (len(rows), rows.nbytes) for table, rows in self.tables.items()}
        return sizes | {folder: (0, len(data)) for folder, data in self.beside.items()}


class Packer:
    """Puts files of one run together. No other process may write into the run meanwhile."""

    def __init__(self, run: store.RunStore) -> None:
        self._run = run
        found = [_NUMBER.fullmatch(path.stem) for path in (run.folder / "cells").glob("*.p[0-9]*.parquet")]
        self._last = max((int(number[1]) for number in found if number), default=0)

    def pack(self, node: str, names: Iterable[str]) -> None:
        """Put repeats of a node together that have ended and are in no pack; `names` are the stems of their files.

        A repeat whose files cannot be read stays as it is: whoever reads the run is told of it.
        """
        batch: list[_Repeat] = []
        sizes: dict[str, tuple[int, int]] = {}
        for name in sorted(names):
            try:
                repeat = self._repeat(name)
            except (store.StoreError, OSError):
                continue
            own = repeat.sizes()
            grown = {part: _sum(sizes.get(part, (0, 0)), size) for part, size in own.items()}
            if len(batch) == MOST_REPEATS or any(map(_is_much, grown.values())):
                self._write(node, batch)
                batch, grown = [], own
            batch.append(repeat)
            sizes = grown
        self._write(node, batch)

    def pack_rest(self) -> None:
        """Put all repeats together that are in no pack yet, each with those of its node."""
        folder = self._run.folder
        by_node: dict[str, list[str]] = {}
        for path in store.packs_of(folder).others(store.singles_of(folder / "cells")):
            if path.stem != "skipped":
                try:
                    nodes = store.read_file(path, "cells", {})["node"].to_pylist()
                except (store.StoreError, OSError):
                    continue
                by_node.setdefault(str(nodes[0] or "") if nodes else "", []).append(path.stem)
        for node, names in sorted(by_node.items()):
            self.pack(node, names)

    def _repeat(self, name: str) -> _Repeat:
        """One repeat, as it lies in its own files. Raises StoreError or OSError."""
        folder = self._run.folder
        tables, nothing = {}, store.Packs(folder, (), {})
        for table in TABLES:
            path = folder / table / f"{name}.parquet"
            must = table == "cells" or table in store.ALWAYS
            rows = store.read_file(path, table, {}) if must or path.is_file() else _no_rows(table)
            if strange(path, rows, nothing):
                raise store.StoreError(f"{path} holds rows of another repeat")
            tables[table] = rows
        beside = {}
        for kind, ending in _BESIDE.items():
            path = folder / kind / f"{name}{ending}"
            if path.is_file():
                # One byte more than a pack takes: what is longer stays where it is.
                beside[kind] = store.read_bytes(path, _MOST_BYTES + 1)
        return _Repeat(name, tables, beside)

    def _write(self, node: str, batch: Sequence[_Repeat]) -> None:
        """Write one pack and remove the files of its repeats. Repeats that together are more than a reader takes become two packs."""
        if len(batch) < 2:
            return
        packed = _packed(batch)
        if packed is None:
            middle = len(batch) // 2
            self._write(node, batch[:middle])
            self._write(node, batch[middle:])
            return
        self._last += 1
        name = f"{quote(node, safe='@')[:_LONGEST_NODE] or 'no-node'}.p{self._last}"
        folder = self._run.folder
        for kind, ending in _BESIDE.items():
            files = {f"{repeat.name}{ending}": repeat.beside[kind] for repeat in batch if kind in repeat.beside}
            store.write_bytes(folder / kind / f"{name}.zip", _archive(files))
        # From here on the pack counts: `cells` is the last.
        for table in sorted(packed, key=lambda table: table == "cells"):
            store.write_bytes(folder / table / f"{name}.parquet", packed[table])
        for repeat in batch:
            _remove(folder, repeat.name)


def clear_up(run: store.RunStore) -> None:
    """Remove what a killed runner left: packs that do not count, and the files of repeats that are in a pack. Raises StoreError.

    No other process may write into the run meanwhile.
    """
    packs = store.packs_of(run.folder)
    for table in TABLES:
        for path in (run.folder / table).glob("*.p[0-9]*.parquet"):
            if store.is_pack(path) and path.stem not in packs.names:
                path.unlink(missing_ok=True)
    for kind in _BESIDE:
        for path in (run.folder / kind).glob("*.p[0-9]*.zip"):
            if store.is_pack(path) and path.stem not in packs.names:
                path.unlink(missing_ok=True)
    there = {path.stem for folder in (*TABLES, *_BESIDE) for path in (run.folder / folder).glob("*.r*")}
    for name in there & set(packs.pack_of):
        _remove(run.folder, name)


def _remove(folder: Path, name: str) -> None:
    """Remove the files of one repeat."""
    for table in TABLES:
        (folder / table / f"{name}.parquet").unlink(missing_ok=True)
    for kind, ending in _BESIDE.items():
        (folder / kind / f"{name}{ending}").unlink(missing_ok=True)


def _packed(batch: Sequence[_Repeat]) -> dict[str, bytes] | None:
    """The files of a pack; None where a reader would not take one of them, or find something else in it."""
    import pyarrow as pa

    packed = {}
    for table in TABLES:
        rows = pa.concat_tables([repeat.tables[table] for repeat in batch])
        data = to_bytes(rows)
        try:
            most_rows, most_bytes = limits(Path(table) / "x.p1.parquet")
            found = bounded.columns(data, rows.schema.names, False, most_rows, most_bytes)
        except pa.ArrowException:
            return None
        if len(data) > most_bytes or not found.equals(rows):
            return None
        packed[table] = data
    return packed


def _archive(files: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            # Without the time of day: the same files make the same archive.
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return sink.getvalue()


def _no_rows(table: str) -> pa.Table:
    return arrow_schema(table).empty_table()


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _is_much(size: tuple[int, int]) -> bool:
    return size[0] > _MOST_ROWS or size[1] > _MOST_BYTES
