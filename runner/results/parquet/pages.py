"""What the columns of a Parquet file take in memory, as the headers of its pages say.

The footer of a file says how many rows, values and bytes there are, and nothing holds it to that: pyarrow unpacks each page to the size
that the page's own header names. So the headers are read first. They lie between the pages and are not compressed.

pyarrow's own view of a column in the footer is not used: where the column contradicts the schema, it ends the process.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

# pyarrow makes a kilobyte of three bytes of a footer. The store writes 20 kB. The texts that a footer may hold besides are not counted:
# the manifest of a reference is one.
_MOST_FOOTER_BYTES = 256 << 10
_MOST_TEXTS = 100
# Where a footer has its rows, its groups of rows and its texts; a group its columns and its rows; and a column what describes its pages.
_ROWS, _GROUPS, _TEXTS = 3, 4, 5
_COLUMNS, _ROWS_OF_GROUP = 1, 3
# How deep the chunks lie.
_CHUNKS = 2
_DESCRIBED, _VALUES, _PACKED_BYTES, _DATA_AT, _DICTIONARY_AT = 3, 5, 7, 9, 11

# The types of pages, as Parquet numbers them.
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
# Where the header of a page has what is of its type alone, and where in that the encoding is.
_OF_TYPE = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}

# In DELTA_BYTE_ARRAY a text is made of the one before it: a page of a megabyte may hold a gigabyte. No release of the store wrote it.
_DELTA_BYTE_ARRAY = 7

# The types of fields in Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_NUMBERS = (_I16, _I32, _I64)
_DEEPEST = 8


def _pattern(parts: bytes) -> re.Pattern[bytes]:
    """A pattern of bytes in which N is a number, and E a struct of three: what a chunk says of how some of its pages are encoded."""
    return re.compile(parts.replace(b"E", rb"\x15N\x15N\x15N\x00").replace(b"N", rb"[\x80-\xff]{0,9}[\x00-\x7f]"))


# What nearly every file has, as pyarrow writes it: its bytes are matched, and only the numbers that are needed are read. All else is read
# field by field, which takes more than twice as long.
# How the footer begins: its version, and then its schema.
_BEGIN = _pattern(rb"\x15N\x19")
# A chunk up to the length of its column's name, and behind the name: its sizes and places, its encodings, and how often it has nulls.
_CHUNK = _pattern(rb"\x26N\x1c\x15N\x19(?:\x15N|\x25NN|\x35NNN|\x45NNNN)\x19\x18([\x00-\x7f])")
_COUNTS = rb"(?:\x06|\x16N|\x26NN|\x36NNN)"
_BEHIND_NAME = _pattern(
    rb"\x15N\x16(N)\x16N\x16(N)\x26(N)(?:\x26(N)\x29|\x49)(?:\x1cE|\x2cEE|\x3cEEE)"
    rb"(?:\x3c(?:\x16N\x19|\x29)" + _COUNTS + rb"\x19" + _COUNTS + rb"\x00)?\x00\x00"
)
# The header of a page: of data without statistics, or of a dictionary.
_PAGES = (
    (_DATA, _pattern(rb"\x15\x00\x15(N)\x15(N)(?:\x15N\x1c|\x2c)\x15(N)\x15(N)\x15N\x15N(?:\x1c\x00)?\x00\x00")),
    (_DICTIONARY, _pattern(rb"\x15\x04\x15(N)\x15(N)(?:\x15N\x3c|\x4c)\x15(N)\x15(N)[\x11\x12]?\x00\x00")),
)

# The schemas that were met, as they lie in footers, with what is read of each of their columns: (its name, whether it is nested, its type).
# All files of a table have the same one. So many are kept.
_Leaves = list[tuple[str, bool, str]]
_SCHEMAS: dict[bytes, _Leaves] = {}
_MOST_SCHEMAS = 16


class LieError(ValueError):
    """A file whose parts contradict each other; the message says which, without the file's name."""


@dataclass(frozen=True)
class Column:
    """One column of a file, of all its groups of rows together. Its place and type are the schema's: a chunk may say others."""

    name: str
    # Of a list or another nested type.
    nested: bool
    physical_type: str
    values: int
    # What its pages take when they are unpacked.
    unpacked_bytes: int


def columns(data: bytes, file: Any, names: Collection[str]) -> list[Column]:
    """These columns of an open `pyarrow.parquet.ParquetFile`, whose bytes are `data`. Raises LieError."""
    footer, leaves = _footer(data)
    if not leaves:
        leaves += map(_leaf, map(file.schema.column, range(len(file.schema))))
    groups = _structs_of(footer, _GROUPS)
    rows = [_whole(group, _ROWS_OF_GROUP) for group in groups]
    if min([_whole(footer, _ROWS), *rows]) < 0 or sum(rows) != _whole(footer, _ROWS):
        raise LieError(f"its footer says {_whole(footer, _ROWS)} rows, and its groups of rows have {sum(rows)}")
    chunks = [_structs_of(group, _COLUMNS) for group in groups]
    if any(len(of_group) != len(leaves) for of_group in chunks):
        raise LieError("a group of its rows has other columns than its schema")
    described = []
    for at, (name, nested, physical_type) in enumerate(leaves):
        if name not in names:
            continue
        values = unpacked = 0
        for count, of_group in zip(rows, chunks, strict=True):
            chunk = of_group[at].get(_DESCRIBED)
            if not isinstance(chunk, Mapping):
                raise LieError(f"its footer does not say where {name} lies")
            in_chunk = _whole(chunk, _VALUES)
            if in_chunk != count and (not nested or in_chunk < count):
                raise LieError(f"{name} has {in_chunk} values in {count} rows")
            values += in_chunk
            unpacked += _unpacked_bytes(data, chunk, name)
        described.append(Column(name, nested, physical_type, values, unpacked))
    return described


def _leaf(column: Any) -> tuple[str, bool, str]:
    nested = bool(column.max_repetition_level or column.path != column.name)
    return column.path.partition(".")[0], nested, column.physical_type


def _footer(data: bytes) -> tuple[Mapping[int, Any], _Leaves]:
    """The footer, and what is known of its columns: an empty list, which the caller fills, where this is nothing yet."""
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    with contextlib.suppress(IndexError, ValueError):
        if begin >= 0:
            schema = _schema(data, begin)
            if schema is None:
                return _struct(data, begin, 0)[0], []
            end, leaves = schema
            return _struct(data, end, 0, passed=2)[0], leaves
    raise LieError("its footer cannot be read")


def _schema(data: bytes, begin: int) -> tuple[int, _Leaves] | None:
    """Where the schema ends in a footer that begins with its version and its schema, and its columns; None of another footer.

    Raises IndexError or ValueError.
    """
    found = _BEGIN.match(data, begin)
    if found is None:
        return None
    at = found.end()
    for schema, leaves in _SCHEMAS.items():
        if data.startswith(schema, at):
            return at + len(schema), leaves
    end, leaves = _end(data, at, _LIST, 0), []
    if end > len(data):
        raise IndexError(end)
    while len(_SCHEMAS) >= _MOST_SCHEMAS:
        del _SCHEMAS[next(iter(_SCHEMAS))]
    _SCHEMAS[data[at:end]] = leaves
    return end, leaves


def _whole(struct: Mapping[int, Any], place: int) -> int:
    """A number of a struct."""
    value = struct.get(place)
    if not isinstance(value, int):
        raise LieError("its footer lacks a number")
    return value


def _structs_of(struct: Mapping[int, Any], place: int) -> list[Mapping[int, Any]]:
    """A list of structs in a struct. One that is empty may have elements of any type."""
    value = struct.get(place)
    return value if isinstance(value, list) else []


def check_footer(data: bytes) -> None:
    """Raise LieError where a file's footer is larger than any that was written. Its length stands before the last four bytes."""
    length = int.from_bytes(data[-8:-4], "little")
    if length <= _MOST_FOOTER_BYTES:
        return
    begin = len(data) - 8 - length
    with contextlib.suppress(IndexError, ValueError):
        if begin >= 0 and _without_texts(data[begin:-8]) <= _MOST_FOOTER_BYTES:
            return
    raise LieError(f"its footer has {length} bytes, and at most {_MOST_FOOTER_BYTES} are read")


def _without_texts(footer: bytes) -> int:
    """How many bytes a footer has beside its texts. Raises IndexError or ValueError, also where they are very many."""
    at = number = texts = 0
    seen = set()
    while byte := footer[at]:
        at += 1
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _number(footer, at)
        if number in seen:
            raise ValueError("a field is there twice")
        seen.add(number)
        if number == _TEXTS and byte & 0x0F == _LIST:
            if footer[at] >> 4 == 15 and _varint(footer, at + 1)[0] > _MOST_TEXTS:
                raise ValueError("there are too many texts")
            end = _end(footer, at, _LIST, 0)
            texts, at = texts + end - at, end
        else:
            # No part is read beyond what may be there.
            at += _end(footer[at : at + _MOST_FOOTER_BYTES], 0, byte & 0x0F, 0)
    return at - texts


def _unpacked_bytes(data: bytes, chunk: Mapping[int, Any], name: str) -> int:
    """What the pages of one column of a group of rows take when they are unpacked. `chunk`: what the footer says of it."""
    begin, of_footer = _whole(chunk, _DATA_AT), _whole(chunk, _VALUES)
    if _DICTIONARY_AT in chunk and 0 < _whole(chunk, _DICTIONARY_AT) < begin:
        begin = _whole(chunk, _DICTIONARY_AT)
    end = begin + _whole(chunk, _PACKED_BYTES)
    if not 0 <= begin <= end <= len(data):
        raise LieError(f"the pages of {name} lie outside the file")
    at, values, unpacked = begin, 0, 0
    while values < of_footer:
        header, at = _header(data, at, name)
        size, packed, kind = header.get(2), header.get(3), header.get(1)
        if not isinstance(size, int) or not isinstance(packed, int) or size < 0 or not 0 <= packed <= end - at:
            raise LieError(f"a page of {name} has no size that is possible")
        at, unpacked = at + packed, unpacked + size
        if kind not in _OF_TYPE:
            continue
        place, encoding = _OF_TYPE[kind]
        of_type = header.get(place)
        of_type = of_type if isinstance(of_type, Mapping) else {}
        count = of_type.get(1)
        if not isinstance(count, int) or count < 0:
            raise LieError(f"a page of {name} does not say how many values it has")
        if of_type.get(encoding) == _DELTA_BYTE_ARRAY:
            raise LieError(f"{name} is encoded as DELTA_BYTE_ARRAY, whose size is not known before it is read")
        # Room for so many is made at once, and each has a length of four bytes or is as long.
        if kind == _DICTIONARY and 4 * count > size:
            raise LieError(f"the dictionary of {name} says {count} values, in {size} bytes")
        values += count if kind != _DICTIONARY else 0
    if values != of_footer:
        raise LieError(f"the pages of {name} have {values} values, and the footer says {of_footer}")
    return unpacked


def _header(data: bytes, at: int, name: str) -> tuple[Mapping[int, Any], int]:
    """The header of the page that begins at a place, and where it ends: behind it, if it is cut off."""
    for kind, pattern in _PAGES:
        if found := pattern.match(data, at):
            size, packed, count, encoding = _numbers(data, found)
            place, of_encoding = _OF_TYPE[kind]
            return {1: kind, 2: size, 3: packed, place: {1: count, of_encoding: encoding}}, found.end()
    with contextlib.suppress(IndexError, ValueError):
        return _struct(data, at, 0)
    raise LieError(f"a page of {name} has no header that can be read")


def _chunk(data: bytes, at: int) -> tuple[dict[int, Any], int] | None:
    """What is read of a chunk of a column, and where it ends; None of one that is written otherwise than nearly all."""
    name = _CHUNK.match(data, at)
    found = name and _BEHIND_NAME.match(data, name.end() + data[name.end() - 1])
    if not found:
        return None
    values, packed, data_at, dictionary_at = _numbers(data, found)
    described = {_VALUES: values, _PACKED_BYTES: packed, _DATA_AT: data_at}
    if dictionary_at is not None:
        described[_DICTIONARY_AT] = dictionary_at
    return {_DESCRIBED: described}, found.end()


def _numbers(data: bytes, found: re.Match[bytes]) -> list[int | None]:
    """The numbers that the groups of a match hold; None of a group that is not in it."""
    numbers: list[int | None] = []
    for begin, end in found.regs[1:]:
        if begin < 0:
            numbers.append(None)
            continue
        value = data[begin] if end - begin == 1 else _varint(data, begin)[0]
        numbers.append(value >> 1 ^ -(value & 1))
    return numbers


def _struct(data: bytes, at: int, depth: int, passed: int = 0) -> tuple[dict[int, Any], int]:
    """A struct of Thrift's compact protocol: (the number of a field -> its value, where the struct ends). Raises IndexError or ValueError.

    A value is a number, a struct or a list of structs; None of anything else, which is passed over. A file has a hundred headers: the small
    numbers, which are nearly all, are read in place. `passed`: its fields up to this number lie before the place.
    """
    if depth > _DEEPEST:
        raise ValueError("structs lie too deep in each other")
    fields: dict[int, Any] = dict.fromkeys(range(1, passed + 1))
    number = passed
    while byte := data[at]:
        at += 1
        if step := byte >> 4:
            number += step
        else:
            number, at = _number(data, at)
        # Readers differ in which of two they take.
        if number in fields:
            raise ValueError("a field is there twice")
        kind = byte & 0x0F
        if kind in _NUMBERS:
            value = data[at]
            at += 1
            if value & 0x80:
                value, at = _varint(data, at - 1)
            fields[number] = value >> 1 ^ -(value & 1)
        elif kind == _STRUCT:
            fields[number], at = _struct(data, at, depth + 1)
        elif kind == _LIST and data[at] & 0x0F == _STRUCT:
            fields[number], at = _structs(data, at, depth + 1)
        else:
            fields[number], at = None, _end(data, at, kind, depth)
    return fields, at + 1


def _structs(data: bytes, at: int, depth: int) -> tuple[list[dict[int, Any]], int]:
    byte = data[at]
    count, at = (byte >> 4, at + 1) if byte >> 4 < 15 else _varint(data, at + 1)
    structs = []
    # Each has a byte at least, so no count goes on for long.
    for _ in range(count):
        # In the footer a group of rows, and in that its chunks of columns.
        struct, at = (depth == _CHUNKS and _chunk(data, at)) or _struct(data, at, depth)
        structs.append(struct)
    return structs, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) & 0x80:
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError("a number is too long")
    return value | byte << shift, at + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _end(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where a value ends."""
    if kind in _NUMBERS:
        return _varint(data, at)[1]
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)[1]
    if kind in (_TRUE, _FALSE):
        return at
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind not in (_LIST, _SET) or depth > _DEEPEST:
        # A header of a page has no map.
        raise ValueError("a field is of no type that is known")
    byte = data[at]
    count, at = (byte >> 4, at + 1) if byte >> 4 < 15 else _varint(data, at + 1)
    for _ in range(count):
        # Each has a byte at least, so no count goes on for long. A truth in a list is a byte.
        if at >= len(data):
            raise IndexError(at)
        at = at + 1 if byte & 0x0F in (_TRUE, _FALSE) else _end(data, at, byte & 0x0F, depth + 1)
    return at
