"""Reads the columns of a Parquet file from a stranger, within bounds that are checked before anything is unpacked."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from runner.results.parquet import pages

if TYPE_CHECKING:
    import pyarrow as pa


def columns(data: bytes, names: Collection[str], optional: bool, most_rows: int, most_bytes: int) -> pa.Table:
    """These columns of a file that holds `data`; with `optional`, those of them that it has. Raises pyarrow.ArrowException.

    `most_rows` and `most_bytes` are what it may have, in memory. `pyarrow.parquet.read_table` would read the same, but loads pyarrow's
    data sets and pandas for it: a third of a second.
    """
    import pyarrow as pa

    try:
        return _read(data, names, optional, most_rows, most_bytes)
    except pa.ArrowException:
        raise
    # Python's own, where a name in the file is no UTF-8 or a number in it is too large.
    except (ValueError, OverflowError, MemoryError) as error:
        raise pa.ArrowInvalid(str(error)) from None


def _read(data: bytes, names: Collection[str], optional: bool, most_rows: int, most_bytes: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pages.check_footer(data)
    # A page that was written with a checksum must have the bytes that were written; one without, of an earlier release, is read as it is.
    with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, page_checksum_verification=True) as file:
        if file.metadata.num_rows > most_rows:
            raise pa.ArrowInvalid(f"it has more than {most_rows} row{'s' if most_rows > 1 else ''}")
        there = [name for name in file.schema_arrow.names if name in names]
        if len(there) != len(set(there)) or (len(there) != len(names) and not optional):
            raise pa.ArrowInvalid(f"it must have each of the columns {', '.join(names)} once")
        found = pages.columns(data, file, there)
        # No value is longer than all of its column: where each may be so long, the file need not be opened twice.
        if sum(column.values * max(8, column.unpacked_bytes) for column in found) <= most_bytes:
            stored = file.read(columns=there, use_threads=False)
            stored.validate(full=True)
            return stored
        _check_size(sum(map(_most_bytes, found)), most_bytes)
    # A value that all rows repeat is stored once: as a dictionary it is also read once.
    texts = sorted({c.name for c in found if _is_text(c)})
    with pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts, page_checksum_verification=True) as file:
        stored = file.read(columns=there, use_threads=False)
    # pyarrow reads texts as they lie: one that is no UTF-8 would end whoever asks for it later.
    stored.validate(full=True)
    return _decoded(stored, most_bytes)


def _check_size(size: int, most: int) -> None:
    import pyarrow as pa

    if size > most:
        raise pa.ArrowInvalid(f"its columns have more than {most} bytes")


def _is_text(column: pages.Column) -> bool:
    return not column.nested and column.physical_type == "BYTE_ARRAY"


def _most_bytes(column: pages.Column) -> int:
    """The most that a column takes in memory, of plain text with each value stored once."""
    if _is_text(column):
        return column.unpacked_bytes + 8 * column.values
    if not column.nested and column.physical_type != "FIXED_LEN_BYTE_ARRAY":
        return max(column.unpacked_bytes, 8 * column.values)
    # Of lists nothing else is known before they are read: no value is longer than all of them.
    return column.values * max(8, column.unpacked_bytes)


def _decoded(stored: pa.Table, most: int) -> pa.Table:
    """A table with its texts in full. Raises ArrowInvalid where it would then have more than `most` bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    size = 0
    for column in stored.columns:
        if pa.types.is_dictionary(column.type):
            for chunk in column.chunks:
                lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
                size += 4 * len(chunk) + (pc.sum(lengths).as_py() or 0)
        else:
            size += column.nbytes
    _check_size(size, most)
    # In place: a table that is made of no columns would have no rows.
    for at, field in enumerate(stored.schema):
        if pa.types.is_dictionary(field.type):
            stored = stored.set_column(at, field.name, stored.column(at).cast(field.type.value_type))
    return stored
