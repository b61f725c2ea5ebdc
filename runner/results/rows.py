"""Stored tables as values of Python and NumPy.

pandas is not used: it takes a quarter of a second to load. pyarrow loads it by itself where a list, a number or a NumPy array
becomes an Arrow value, or an array of pyarrow's becomes NumPy's by `to_numpy`; `numpy.from_dlpack` does not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from runner.results.statistics import Array

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
Place = tuple[str, str, int]  # run id, cell id, repeat


def rows_of(table: pa.Table) -> list[Row]:
    """The table's rows, with None for every null and for what is not a number."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, float) and math.isnan(value):
                row[name] = None
    return list(rows)


def by_repeat(table: pa.Table) -> dict[Place, pa.Table]:
    """The table cut up by run, cell and repeat, each part in its stored order."""
    return {(run, cell, repeat): part for (run, cell, repeat), part in parts(table, ("run_id", "cell_id", "repeat"))}


def parts(table: pa.Table, names: Sequence[str]) -> list[tuple[tuple[Any, ...], pa.Table]]:
    """The table cut up by the values of some columns: (the values, the part in its stored order).

    The parts come in the order of their first rows. A row in which one of the values is null is in no part.
    """
    if not len(table):
        return []
    table = table.combine_chunks()
    code: npt.NDArray[np.int64] = np.zeros(len(table), np.int64)
    for name in names:
        encoded = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        code = code * len(encoded.dictionary) + np.asarray(np.from_dlpack(encoded.indices), np.int64)
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    cut = []
    for rows in sorted(np.split(order, starts[1:]), key=lambda rows: int(rows[0])):
        values = tuple(table[name][int(rows[0])].as_py() for name in names)
        if None not in values:
            cut.append((values, taken(table, rows)))
    return cut


def place_codes(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[tuple[str, int]]]:
    """The repeat of each row: places in the list of (cell id, repeat), in which each is once."""
    columns = [table[name].combine_chunks().dictionary_encode() for name in ("cell_id", "repeat")]
    cells, repeats = (np.asarray(np.from_dlpack(column.indices), np.int64) for column in columns)
    cell_ids, numbers = (column.dictionary.to_pylist() for column in columns)
    codes, inverse = np.unique(cells * len(numbers) + repeats, return_inverse=True)
    return inverse, [(cell_ids[code // len(numbers)], numbers[code % len(numbers)]) for code in codes.tolist()]


def of_places(table: pa.Table, places: Collection[tuple[str, int]]) -> pa.Table:
    """The rows of these repeats, (cell id, repeat)."""
    codes, found = place_codes(table)
    return chosen(table, np.array([place in places for place in found], bool)[codes])


def chosen(table: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    """The rows at which the mask is true."""
    return taken(table, np.flatnonzero(mask))


def in_order(table: pa.Table, *names: str) -> pa.Table:
    """The table sorted by some columns, the first one first; rows that are equal in them keep their order."""
    return taken(table, np.lexsort([floats(table, name) for name in reversed(names)]))


def taken(table: pa.Table, rows: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """The rows at these places. Rows that lie together are a slice, which costs nothing; others are copied."""
    import pyarrow as pa

    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return table.slice(int(rows[0]), len(rows))
    places = np.ascontiguousarray(rows, np.int64)
    return table.take(pa.Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(places)]))


def columns(table: pa.Table, names: Iterable[str]) -> dict[str, Array]:
    """Some columns by their names, each as floats."""
    return {name: floats(table, name) for name in names}


def floats(table: pa.Table, name: str) -> Array:
    """A column as floats, NaN for every null."""
    import pyarrow as pa

    column = table[name]
    if column.null_count or not len(column):
        return np.array(column.to_pylist(), dtype=np.float64)
    return np.asarray(np.from_dlpack(column.cast(pa.float64(), safe=False).combine_chunks()), np.float64)
