"""Reads JSON that another machine or a cell without walls wrote: texts, numbers and counts are bounded, and no field is believed."""

from __future__ import annotations

import functools
import io
import json
import math
import sys
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from runner.errors import UserError, first_problem
from runner.results.on_disk.schema import TABLES
from runner.text import in_a_line

# Of a sentence or a name that another machine says, in characters.
MOST_LINE = 2000

# The values of a document: in memory an empty list takes thirty times its bytes. A plan of 20 000 steps has fewer.
_MOST_VALUES = 400_000

Text = Annotated[str, Field(max_length=300)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,60}$")]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class UntrustedError(UserError):
    """A document that no release wrote; the message names it and says why."""


def document(content: bytes, name: str, most: int = _MOST_VALUES) -> Any:
    """A document whose numbers a table holds and whose texts a file holds. Raises UntrustedError, also for more than `most` values."""
    # They are counted before any is made; a comma in a text counts too.
    if len(content) > most and sum(map(content.count, (b",", b"[", b"{"))) > most:
        raise UntrustedError(f"{name} has more than {most} values, and no release writes so many")
    try:
        value = _DECODER.decode(content.decode("utf-8"))
        if b"\\ud" in content.lower():
            # An escape may stand for half of a character.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise UntrustedError(f"{name} is not JSON ({str(error)[:200]})") from None
    return value


def shown_as_it_is(value: Any) -> Any:
    """Raise ValueError where a text would act on a terminal, or is longer than any that a runner writes."""
    texts = [value]
    # The cells of a plan say the same few words: each is looked at once.
    seen: set[str] = set()
    while texts:
        each = texts.pop()
        if isinstance(each, str):
            if each not in seen and in_a_line(each, MOST_LINE) != each:
                raise ValueError(f"a text that cannot be shown as it is: {in_a_line(each, 60)}")
            seen.add(each)
        elif isinstance(each, Mapping):
            texts += [*each, *each.values()]
        elif isinstance(each, list | tuple):
            texts += each
    return value


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"the number {digits[:20]}… is too large")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


# A parcel has a line for each event. json.loads would make a decoder for each.
_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_finite, parse_constant=_no_number)

_Number = Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False, strict=True)]
# A time before 1970 or after 2286 would stretch every plot.
_Unix = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False, strict=True)]
_Whole = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
_KINDS: dict[str, Any] = {"double": _Number, "int64": _Whole, "string": Text}
# Of a row, in bytes: its numbers and the names of its columns take less than 1 kB, and the name of a device is a text.
_MOST_ROW_BYTES = 8192
_KEYS = ("run_id", "cell_id", "repeat", "seconds")
_COLUMNS = {column.name: column.kind for column in TABLES["telemetry"] if column.name not in _KEYS}


@functools.cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    """The validators of each column of a row. To make them takes as long as to read five thousand values."""
    adapters: dict[str, TypeAdapter[Any]] = {
        column: TypeAdapter(_KINDS[kind] | None) for column, kind in _COLUMNS.items()
    }
    return adapters | {"unix": TypeAdapter(_Unix), "device": TypeAdapter(Text)}


def telemetry_rows(content: bytes, name: str, most: int) -> tuple[dict[str, Any], ...]:
    """The rows of a recording, at most so many: columns of the table, with `unix` for the time. Raises UntrustedError."""
    if content.count(b"\n") > most:
        raise UntrustedError(f"{name} has more than {most} rows")
    adapters, rows = _adapters(), []
    # A list of all the lines would double the memory.
    for line in io.BytesIO(content):
        if len(line) > _MOST_ROW_BYTES:
            raise UntrustedError(f"{name} has a row of more than {_MOST_ROW_BYTES} bytes")
        row = document(line, name)
        if not isinstance(row, dict) or not {"unix", "device"} <= set(row) <= set(adapters):
            raise UntrustedError(f"{name} has a row that is no sample of a device")
        try:
            # The names of the columns are in memory once, and not once a row.
            checked = {sys.intern(column): adapters[column].validate_python(value) for column, value in row.items()}
        except ValidationError as error:
            raise UntrustedError(f"{name}: {first_problem(error)}") from None
        rows.append(checked | {"device": sys.intern(checked["device"])})
    return tuple(rows)
