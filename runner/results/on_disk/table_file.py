"""One file of a table: how it is written, and read within bounds."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from runner.results.on_disk.layout import is_pack
from runner.results.on_disk.whole import StoreError, read_bytes
from runner.results.parquet import bounded
from runner.results.parquet.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

# The most rows and bytes of one repeat's table, as it lies on disk and in memory. A cell prints at most 200 000 events of
# 64 MiB; the runner adds its keys, and some rows of its own.
_MOST_ROWS, _MOST_TABLE_BYTES = 201_000, 96 << 20

# Longer tables are compressed.
_MANY_ROWS = 1000

# Telemetry of days on sixteen GPUs.
_MOST_TELEMETRY_ROWS, _MOST_TELEMETRY_BYTES = 1_000_000, 192 << 20


def to_bytes(rows: pa.Table) -> bytes:
    """A table as the store writes it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    # A compressed column takes three times as long to read, and of a few rows it is no smaller.
    many = len(rows) > _MANY_ROWS
    pq.write_table(
        rows,
        sink,
        compression="zstd" if many else "none",
        use_dictionary=len(rows) > 1,
        write_statistics=many,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue().to_pybytes())


def read_columns(path: Path, names: Collection[str], optional: bool = False) -> pa.Table:
    """These columns of one file; with `optional`, those of them that it has. Raises pyarrow.ArrowException or OSError."""
    most_rows, most_bytes = limits(path)
    return bounded.columns(read_bytes(path, most_bytes), names, optional, most_rows, most_bytes)


def limits(path: Path) -> tuple[int, int]:
    """The most rows and bytes that a run writes into a file. A repeat has one row in cells; the skipped ones lie in a file of their own.

    A pack is no larger than the tables of one repeat may be.
    """
    if path.parent.name == "telemetry":
        return _MOST_TELEMETRY_ROWS, _MOST_TELEMETRY_BYTES
    alone = path.parent.name == "cells" and path.stem != "skipped" and not is_pack(path)
    return 1 if alone else _MOST_ROWS, _MOST_TABLE_BYTES


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def read_file(path: Path, table: str, empty: dict[bytes, pa.Table]) -> pa.Table:
    """One file with the columns of a table: null where the release that wrote it had no such column.

    Raises StoreError, and FileNotFoundError where it is not there.

    `empty` are the files without a row that were read before, by what they hold: of most tables a run has hundreds that are the same.
    """
    import pyarrow as pa

    schema = arrow_schema(table)
    try:
        most_rows, most_bytes = limits(path)
        data = read_bytes(path, most_bytes)
        if data in empty:
            return empty[data]
        stored = bounded.columns(data, schema.names, True, most_rows, most_bytes)
        if not len(stored) and stored.schema.equals(schema):
            empty[data] = stored
        if stored.schema.equals(schema):
            return stored
        there = set(stored.column_names)
        columns = [
            _as_type(stored[field.name], field.type) if field.name in there else pa.nulls(len(stored), field.type)
            for field in schema
        ]
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} cannot be read as a {table} table ({error}); remove or restore it") from None
    return pa.Table.from_arrays(columns, schema=schema)
