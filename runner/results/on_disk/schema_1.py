"""Reads the runs of the release before parcels: a Parquet file a table for each repeat, or one for many, which is called a pack.

They are read only, and for one release. Nothing vouches for such a file: a run from elsewhere says what its maker wants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.results.on_disk.schema import arrow_schema, no_rows
from runner.results.on_disk.whole import StoreError, open_parquet, read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1

_PACK = re.compile(r".+\.p[1-9][0-9]*\.parquet")
_REPEAT = re.compile(r"(?P<cell>.+)\.r(?P<repeat>[1-9][0-9]*)\.parquet")

# The planned combinations that were left out.
_SKIPPED = "skipped.parquet"

# Every release wrote a file of these for each repeat, be it one without rows.
_ALWAYS = ("cells", "samples", "metrics", "parity")

# More than that release wrote into a file: telemetry of days on sixteen GPUs.
_MOST_ROWS, _MOST_BYTES = 1_000_000, 192 << 20
_TYPES = {"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE", "BYTE_ARRAY"}
# A few bytes of a file can give each of its rows the same long text.
_MOST_TEXT_BYTES = 512 << 20
# Tables of measurements are packed some ten times, those of few rows some hundred times.
_LEAST_UNPACKED, _MOST_RATIO = 1 << 20, 1000
# The footer may understate its sizes: the rows are counted as they are read.
_BATCH_ROWS = 1 << 16


def read(folder: Path, run_id: str, table: str) -> pa.Table:
    """A table of such a run. Raises StoreError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    owners, names = _owners(folder, run_id), _names(folder / table)
    files = {
        folder / table / name: _table(folder / table / name, table, run_id)
        for name in dict.fromkeys(owners.values())
        if name in names or table in _ALWAYS
    }
    for path, part in files.items():
        places = _places(part)
        for cell_id, repeat in [place for place in places if owners.get(place) != path.name]:
            raise StoreError(
                f"{path} holds rows of {cell_id}, repeat {repeat}, which are not its own; remove or restore it"
            )
        if table == "cells" and (not len(part) or len(places) < len(part)):
            raise StoreError(f"{path} holds no repeat, or one twice; remove or restore it")
    if table == "samples":
        _refuse_without_samples(folder, run_id, files)
    if table == "cells" and _SKIPPED in names:
        files[folder / table / _SKIPPED] = skipped = _table(folder / table / _SKIPPED, table, run_id)
        if any(status != "skipped" for status in skipped["status"].to_pylist()):
            raise StoreError(f"{folder / table / _SKIPPED} holds a repeat; remove or restore it")
    rows = pa.concat_tables([no_rows(table), *files.values()])
    # Readers count on it.
    never_null = ("run_id", "cell_id", "repeat", *(("seconds", "steps") if table == "samples" else ()))
    if lacking := [name for name in never_null if pc.any(pc.is_null(rows[name])).as_py()]:
        raise StoreError(f"{folder / table}: {lacking[0]} is missing in a row; restore the files")
    return rows


def _owners(folder: Path, run_id: str) -> dict[tuple[str, int], str]:
    """(cell id, repeat) -> the name of the files that hold it, of each repeat that has ended."""
    owners: dict[tuple[str, int], str] = {}
    cells = folder / "cells"
    names = sorted(_names(cells) - {_SKIPPED})
    packs = [name for name in names if _PACK.fullmatch(name)]
    for name in packs:
        for place in _places(_table(cells / name, "cells", run_id)):
            if (other := owners.setdefault(place, name)) != name:
                raise StoreError(f"{cells / other} and {cells / name} hold the same repeat; remove one of them")
    for name in names:
        if one := _REPEAT.fullmatch(name):
            # A runner that was killed while it packed left the files of some repeats beside the pack.
            owners.setdefault((one["cell"], int(one["repeat"])), name)
        elif name not in packs:
            raise StoreError(f"{cells / name} has a name that no release gave; remove it")
    return owners


def _names(folder: Path) -> set[str]:
    """The names of the tables in a folder. A name that begins with a point is an aside file of this or another program."""
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise StoreError(f"{folder} cannot be read ({error.strerror}); restore it, or leave this run out") from None
    return {name for name in names if name.endswith(".parquet") and not name.startswith(".")}


def _places(rows: pa.Table) -> list[tuple[str, int]]:
    """Each (cell id, repeat) of the rows once."""
    unique = rows.select(["cell_id", "repeat"]).group_by(["cell_id", "repeat"], use_threads=False).aggregate([])
    return list(zip(unique["cell_id"].to_pylist(), unique["repeat"].to_pylist(), strict=True))


def _refuse_without_samples(folder: Path, run_id: str, files: Mapping[Path, pa.Table]) -> None:
    """Raise StoreError where a repeat ended well and measured neither windows nor single operations."""
    cells = read(folder, run_id, "cells").select(["cell_id", "repeat", "status"]).to_pylist()
    ended_well = {(row["cell_id"], row["repeat"]) for row in cells if row["status"] == "ok"}
    if not (lacking := ended_well.difference(*map(_places, files.values()))):
        return
    if lacking := lacking.difference(_places(read(folder, run_id, "operations"))):
        owners = _owners(folder, run_id)
        cell_id, repeat = min(lacking)
        raise StoreError(
            f"{folder / 'samples' / owners[cell_id, repeat]}: {cell_id}, repeat {repeat} ended well, and has no window; restore it"
        )


def _bounded_texts(metadata: Any, size: int) -> list[str]:
    """The paths of the columns of text. Raises ArrowInvalid for more values than a table has, in lists too, or of any length.

    size: the bytes of the file.
    """
    import pyarrow as pa

    columns = [metadata.schema.column(at) for at in range(metadata.num_columns)]
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    counts = [sum(group.column(at).num_values for group in groups) for at in range(metadata.num_columns)]
    if max(metadata.num_rows, *counts) > _MOST_ROWS:
        raise pa.ArrowInvalid(f"it has more than {_MOST_ROWS} rows")
    unpacked = sum(
        max(group.total_byte_size, sum(group.column(at).total_uncompressed_size for at in range(group.num_columns)))
        for group in groups
    )
    if unpacked > min(_MOST_TEXT_BYTES, _LEAST_UNPACKED + _MOST_RATIO * size):
        raise pa.ArrowInvalid("it unpacks to more bytes than a table has")
    if other := {column.physical_type for column in columns} - _TYPES:
        raise pa.ArrowInvalid(f"it has columns of the type {min(other)}")
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _read(file: Any, columns: list[str]) -> pa.Table:
    """These columns. Raises ArrowInvalid as soon as more rows or bytes are read than a table has, whatever the footer says."""
    import pyarrow as pa

    batches, rows, size = [], 0, 0
    for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
        rows, size = rows + len(batch), size + batch.nbytes
        if rows > _MOST_ROWS or size > _MOST_TEXT_BYTES:
            raise pa.ArrowInvalid(f"it has more than {_MOST_ROWS} rows or {_MOST_TEXT_BYTES} bytes")
        batches.append(batch)
    return pa.Table.from_batches(batches) if batches else file.schema_arrow.empty_table().select(columns)


def _text_bytes(values: pa.Array) -> int:
    """The bytes of an array of texts that was read as a dictionary, or of lists of them, once each has its own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    while pa.types.is_list(values.type):
        values = values.flatten()
    if not pa.types.is_dictionary(values.type):
        return 0
    lengths = pc.binary_length(values.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(values.indices)).as_py() or 0


def _table(path: Path, table: str, run_id: str) -> pa.Table:
    """The columns of today's table in a file; null where it has none of the name."""
    import pyarrow as pa

    schema = arrow_schema(table)
    try:
        data = read_bytes(path, _MOST_BYTES)
        with open_parquet(data) as file:
            texts = _bounded_texts(file.metadata, len(data))
        # As dictionaries: a text of many rows takes memory once.
        with open_parquet(data, texts) as file:
            names = set(file.schema_arrow.names)
            stored = _read(file, [name for name in schema.names if name in names])
        stored.validate(full=True)
        if sum(_text_bytes(chunk) for column in stored.columns for chunk in column.chunks) > _MOST_TEXT_BYTES:
            raise pa.ArrowInvalid(f"its texts have more than {_MOST_TEXT_BYTES} bytes")
        columns = [
            stored[field.name].cast(field.type) if field.name in names else pa.nulls(len(stored), field.type)
            for field in schema
        ]
    # Python's own, where a name in the file is no UTF-8 or there are two columns of a name.
    except (OSError, pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise StoreError(
            f"{path} cannot be read as a {table} table ({error}); restore it, or leave this run out"
        ) from None
    rows = pa.Table.from_arrays(columns, schema=schema)
    if others := set(rows["run_id"].unique().to_pylist()) - {run_id}:
        raise StoreError(f"{path} speaks for the run {min(map(str, others))!r} and lies in {run_id!r}; remove it")
    return rows
