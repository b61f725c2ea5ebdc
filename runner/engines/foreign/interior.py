"""Looks what a foreign image holds: its Python, and the frameworks that the bench can import there.

It runs in a container with the limits of a cell's. What it prints is a stranger's: bounded in time and size, and validated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bench import rules
from runner.engines.probe import Printed
from runner.errors import EngineError
from runner.text import in_a_line, last_line

# The interpreters that are tried, in this order; a bare name is looked up on the image's PATH.
CANDIDATES = ("python", "python3", "/opt/conda/bin/python", "/usr/local/bin/python3", "/usr/bin/python3")

# The oldest Python that the bench's syntax is for.
OLDEST = (3, 6)

# Importing every framework from a cold disk takes minutes.
SECONDS = 300.0
MOST_BYTES = 1 << 20
MEMORY_BYTES = 8 << 30

# The exit codes of a container whose program is not there, or is none.
_NO_PROGRAM = (126, 127)

# In the syntax that every Python has, so that an old one can say how old it is.
_QUESTION = """
import json, sys
try:
    import numpy
    found = numpy.__version__
except Exception:
    found = ""
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "place": sys.executable + " " + sys.prefix, "numpy": found}))
"""


def _is_version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError("it is no version") from None
    return text


_Word = Annotated[str, Field(max_length=100, pattern=r"^[\x20-\x7e]*$")]
_Release = Annotated[str, Field(max_length=60), AfterValidator(_is_version)]


class _Python(BaseModel):
    model_config = ConfigDict(strict=True)

    version: Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3}$")]
    place: Annotated[str, Field(max_length=4096)]
    numpy: Annotated[str, Field(max_length=60)]

    @property
    def release(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))[:2]


class FoundFramework(BaseModel):
    """A framework of the image, as the bench lists it."""

    model_config = ConfigDict(strict=True)

    framework: _Word
    version: _Release
    device_kinds: Annotated[list[Literal["cpu", "cuda"]], Field(max_length=2)]
    versions: Annotated[dict[_Word, _Word], Field(max_length=30)]


class _Lacking(BaseModel):
    """A framework of the image that lacks a package beside its own."""

    model_config = ConfigDict(strict=True)

    framework: _Word
    lacks: _Word


@dataclass(frozen=True)
class Interior:
    """The Python of an image that has frameworks, and these."""

    interpreter: str
    python: str
    numpy: str
    frameworks: tuple[FoundFramework, ...]


# Starts a program of the image with arguments, and reads what it prints.
Ask = Callable[[str, Sequence[str]], Printed]


def interior(ask: Ask) -> Interior:
    """The content of the image, in the first of its interpreters that has a framework. Raises EngineError, with what to do."""
    reasons: list[str] = []
    for interpreter, python in _interpreters(ask):
        if why := _unusable(interpreter, python):
            reasons.append(why)
            continue
        frameworks, lacking = _frameworks(ask, interpreter)
        if frameworks:
            return Interior(interpreter, python.version, python.numpy, frameworks)
        none = f"its {interpreter} imports none of the bench's frameworks ({', '.join(rules.framework_names())}): install one in it"
        lacks = [f"its {interpreter} has {one.framework} and lacks {one.lacks}: install that in it" for one in lacking]
        reasons += lacks or [none]
    raise EngineError("; ".join(reasons) or "it has no Python: install one in it, or name an image that has one")


def _unusable(interpreter: str, python: _Python) -> str | None:
    """Why no framework can be asked of this interpreter; None where one can."""
    if python.release < OLDEST:
        return f"its {interpreter} is Python {python.version}, and the bench needs 3.6 or newer: use a newer image"
    add = f"add `RUN {interpreter} -m pip install numpy` to its Dockerfile"
    return None if python.numpy else f"its {interpreter} has no NumPy, which every cell needs: {add}"


def _interpreters(ask: Ask) -> Iterator[tuple[str, _Python]]:
    """The image's interpreters, each once."""
    places = set()
    for candidate in CANDIDATES:
        printed = ask(candidate, ("-c", _QUESTION))
        if printed.ended.code in _NO_PROGRAM:
            continue
        python = _read(printed, candidate, TypeAdapter(_Python))
        if python.place not in places:
            places.add(python.place)
            yield candidate, python


def _frameworks(ask: Ask, interpreter: str) -> tuple[tuple[FoundFramework, ...], list[_Lacking]]:
    """The frameworks that it imports, and those that lack a package beside their own."""
    printed = ask(interpreter, ("-m", "bench", "frameworks"))
    entries = _read(printed, interpreter, TypeAdapter(Annotated[list[FoundFramework | _Lacking], Field(max_length=60)]))
    known = {entry.framework: entry for entry in entries if entry.framework in set(rules.framework_names())}.values()
    lacking = [entry for entry in known if isinstance(entry, _Lacking)]
    return tuple(entry for entry in known if isinstance(entry, FoundFramework)), lacking


def _read(printed: Printed, interpreter: str, kind: TypeAdapter[Any]) -> Any:
    """The answer of an interpreter. Raises EngineError."""
    failed = f"its {interpreter} did not say what it has"
    if printed.late:
        raise EngineError(f"{failed} within {SECONDS:.0f} s: try its Python by hand, or leave the image out")
    if printed.too_long:
        raise EngineError(
            f"{failed}: it printed more than {MOST_BYTES >> 20} MiB; silence what prints when Python starts"
        )
    try:
        return kind.validate_python(json.loads(printed.output))
    except (ValueError, RecursionError) as error:
        said = last_line(printed.ended.log_tail) if printed.ended.code else ""
        why = said or ("another answer" if isinstance(error, ValidationError) else "no JSON")
        raise EngineError(
            f"{failed} (exit {printed.ended.code}): {in_a_line(why, 300)}; try its Python by hand"
        ) from None
