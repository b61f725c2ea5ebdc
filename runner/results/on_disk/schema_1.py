"""Reads the runs of the release before parcels: a Parquet file a table for each repeat, or one for many, which is called a pack.

They are read only, and for one release. Nothing vouches for such a file: a run from elsewhere says what its maker wants.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from runner.results.on_disk.schema import arrow_schema, no_rows
from runner.results.on_disk.whole import StoreError, open_parquet, read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1

_PACK = re.compile(r".+\.p[1-9][0-9]*")

# More than that release wrote into a file: telemetry of days on sixteen GPUs.
_MOST_ROWS, _MOST_BYTES = 1_000_000, 192 << 20


def read(folder: Path, run_id: str, table: str) -> pa.Table:
    """A table of such a run. Raises StoreError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    files = sorted((folder / "cells").glob("*.parquet"))
    packs = [path.name for path in files if _PACK.fullmatch(path.stem)]
    packed = {
        f"{cell}.r{repeat}.parquet"
        for name in packs
        for cell, repeat in _keys(_table(folder / "cells" / name, "cells", run_id))
    }
    # A runner that was killed while it packed left the files of some repeats beside the pack.
    names = packs + [path.name for path in files if path.name not in packed and path.name not in packs]
    paths = [folder / table / name for name in names]
    # Not every release wrote a file of every table.
    parts = [_table(path, table, run_id) for path in paths if path.is_file()]
    rows = pa.concat_tables([no_rows(table), *parts])
    # Readers count on it.
    never_null = ("run_id", "cell_id", "repeat", *(("seconds", "steps") if table == "samples" else ()))
    if lacking := [name for name in never_null if pc.any(pc.is_null(rows[name])).as_py()]:
        raise StoreError(f"{folder / table}: {lacking[0]} is missing in a row; restore the files")
    return rows


def _keys(rows: pa.Table) -> list[tuple[str, int]]:
    return list(zip(rows["cell_id"].to_pylist(), rows["repeat"].to_pylist(), strict=True))


def _table(path: Path, table: str, run_id: str) -> pa.Table:
    """The columns of today's table in a file; null where it has none of the name."""
    import pyarrow as pa

    schema = arrow_schema(table)
    try:
        with open_parquet(read_bytes(path, _MOST_BYTES)) as file:
            if file.metadata.num_rows > _MOST_ROWS:
                raise pa.ArrowInvalid(f"it has more than {_MOST_ROWS} rows")
            names = set(file.schema_arrow.names)
            stored = file.read(columns=[name for name in schema.names if name in names], use_threads=False)
        stored.validate(full=True)
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
