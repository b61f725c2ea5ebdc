"""Text that comes out of an image, made safe to show on a terminal and in the report; and numbers of things.

Names, versions and log lines may hold anything. Escaping for HTML or Markdown is left to who writes it. Here the characters that
act without any markup are made visible: terminal escapes, and the marks that reverse text.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

# The form of every `--format json`: one object that begins with the number of its schema. The types of the objects stand beside what
# fills them; tests/json_schemas.py lists them, and makes their JSON Schemas and docs/json.md.

# Larger by 1 whenever a key of any object goes away or gets another meaning. A new key leaves it as it is.
SCHEMA = 1


def print_document(document: Mapping[str, object]) -> None:
    """Print an object for a script. Its values may be dataclasses and models of pydantic, which become objects of their fields."""
    print(json.dumps({"schema": SCHEMA, **document}, indent=2, allow_nan=False, default=_fields))


def _fields(value: Any) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value.model_dump(mode="json")


# Of one value, in characters.
LONGEST = 600

_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
_DOUBTFUL = re.compile(r"[^\x20-\x7e\n\t]")
_PLAIN = re.compile(r"[\x20-\x7e]*\Z")

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def visible(text: str, longest: int = LONGEST) -> str:
    """`text` without characters that act: colour codes are dropped; other control, bidirectional, zero-width and private
    characters become their code points; and what is beyond `longest` characters is cut, with a note."""
    whole = len(text)
    # A value may have megabytes: cut it first, and leave room for what is dropped.
    text = text[: longest * 4]
    if not _PLAIN.match(text):
        text = _DOUBTFUL.sub(lambda match: _visible_character(match[0]), _ANSI.sub("", text))
    if whole > longest * 4 or len(text) > longest:
        thousands = f"{whole:,}".replace(",", " ")
        text = f"{text[:longest]} … [cut: {thousands} characters in all]"
    return text


def in_a_line(text: str, longest: int = LONGEST) -> str:
    """`visible` in one line: a message with line breaks must not look like the runner's lines."""
    return "⏎".join(visible(text, longest).splitlines())


def last_line(log: str) -> str:
    """The last line of a log that is not empty: in Python the exception. Empty where there is none."""
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")


def _visible_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return character
    if character == "\r":
        return "\n"
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def plural(count: int, word: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{count} {word if count == 1 else word + 's'}"


def length(seconds: float) -> str:
    """An estimated length of time, rounded: more digits would promise too much."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, thousands parted by a thin space."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    # Nothing that is measured is so large, and the error of a network that diverged may be.
    rounded = value if abs(value) >= 1e15 else round(value, places)
    if 1e-4 <= abs(rounded) < 1e15:
        return f"{rounded:,.{max(0, places)}f}".replace(",", "\u2009")
    mantissa, exponent = f"{rounded:.{digits - 1}e}".split("e")
    return f"{mantissa}\u2009·\u200910{str(int(exponent)).translate(_RAISED)}"
