"""The limits of a cell's container: asked for, and read back from its engine, which may drop one without a word.

The fact is `{"engine": name and version, "rootless": bool, "limits": {limit: [asked, has]}}`. A cell without a container has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Isolation = Mapping[str, Any]

# The engines whose cells run in containers.
CONTAINER_ENGINES = frozenset({"docker", "podman", "apptainer"})


def not_held(isolation: Isolation) -> tuple[str, ...]:
    """The limits that the engine did not apply as it was asked to."""
    return tuple(limit for limit, (asked, has) in isolation["limits"].items() if asked != has)


def described(isolation: Isolation | None) -> str:
    """The engine's own name and version, and what it did not apply: "Podman Engine 4.3.1, rootless, without memory, swap"."""
    if isolation is None:
        return ""
    without = ", ".join(not_held(isolation))
    return f"{_engine(isolation)}{without and f', without {without}'}"


def _engine(isolation: Isolation) -> str:
    return f"{isolation['engine']}{', rootless' if isolation['rootless'] else ''}"


def caveat(isolation: Isolation | None) -> str | None:
    """The sentence beside the figure of a cell that ran without some of its limits; None where all of them held."""
    if isolation is None:
        return None
    limits = ", ".join(not_held(isolation))
    return f"{_engine(isolation)} did not apply these limits to its container: {limits}." if limits else None


def of_row(row: Mapping[str, Any]) -> Isolation | None:
    """The fact of a stored row; None where it has none, or one of another form: no parcel vouches for the rows of old releases."""
    try:
        fact = json.loads(row.get("isolation_json") or "null")
        limits = {str(limit): [asked, has] for limit, (asked, has) in fact["limits"].items()}
        return {"engine": str(fact["engine"]), "rootless": bool(fact["rootless"]), "limits": limits}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
