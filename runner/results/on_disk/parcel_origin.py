"""The origin of a parcel, as far as this installation knows it: it stored the parcel so, or others wrote it.

A signature beside the parcel shows it, by a key that lies with the data of the user. It says nothing of what was measured: who can
read the key can sign, and what was false when it was stored stays false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from runner.text import plural

CHANGED = "changed since it was stored"
ELSEWHERE = "not of this installation"

# A caveat begins so.
UNPROVED = "Its origin is not proved"


def origin_of(name: str, sha256: str, signed: Mapping[str, set[str]], imported: Mapping[str, str]) -> str | None:
    """The origin of a parcel; None where this installation stored it so.

    `signed`: what this installation stored. `imported`: the digests that run.json names, of a run that was imported.
    """
    if sha256 in signed.get(name, ()):
        return None
    changed = name in signed or imported.get(name, sha256) != sha256
    return CHANGED if changed else ELSEWHERE


def caveat(origins: Iterable[str | None]) -> str | None:
    """The sentence beside the figure of a cell with such repeats; None where all are as they were stored here."""
    counts = Counter(origin for origin in origins if origin)
    if not counts:
        return None
    each = " and ".join(
        f"{plural(count, 'repeat')} {_IS[count > 1]} {origin}" for origin, count in sorted(counts.items())
    )
    return f"{UNPROVED}: {each}."


_IS = {False: "is", True: "are"}


def of_run(name: str, rows: Iterable[Mapping[str, Any]]) -> str | None:
    """The same of a whole run, for a command that reads it."""
    said = caveat(row["origin"] for row in rows)
    return (
        said
        and f"{name}: {said[0].lower()}{said[1:-1]}; who wrote them could write any figure (docs/results-format.md)"
    )
