"""What no run writes and no reader could use, found in stored files before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = ("run_id", "cell_id", "repeat")

# Beside the keys: the columns that are never null, of those tables whose every row is one event of the protocol.
_NEVER_NULL = {
    "samples": "all",
    "operations": "all",
    "profile": "all",
    "metrics": ("name", "split", "step", "train_seconds"),
}

# Beyond it nothing is a measurement, and arithmetic on it overflows. A loss that diverges, and the error of a wrong network, may be.
_MOST = 1e18
_UNBOUNDED = {("metrics", "value"), ("parity", "error"), ("parity", "bound")}

# What readers need of run.json, of its `host`, of each cell of its `plan` and of what a resumed run took over.
_MANIFEST = {
    "run_id": str,
    "created": str,
    "argv": list,
    "seed": int,
    "preset": str,
    "repeats": int,
    "engine": str,
    "host": dict,
    "plan": list,
    "bench_sha256": str,
    "runner_version": str,
}
_HOST = {"cpu_model": str, "cpu_count": int, "memory_bytes": int, "kernel": str}
_PLANNED = {
    **dict.fromkeys(("id", "image", "framework", "workload", "precision", "preset"), str),
    **dict.fromkeys(("devices", "batch"), int),
}
_REUSED = {"cell_id": str, "repeat": int}
_WORDS = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}


def of_manifest(manifest: Mapping[str, Any]) -> str:
    """The first field of run.json that no reader could use, in words; empty where all is well."""
    if wrong := _misfits(manifest, _MANIFEST, "") or _misfits(manifest["host"], _HOST, "host."):
        return wrong
    if not all(isinstance(word, str) for word in manifest["argv"]):
        return "argv is not a list of texts"
    for name, fields in (("plan", _PLANNED), ("reused", _REUSED)):
        entries = manifest.get(name) or []
        if not isinstance(entries, list):
            return f"{name} is not a list"
        for at, entry in enumerate(entries):
            if wrong := _misfits(entry, fields, f"{name}[{at}]."):
                return wrong
    return ""


def _misfits(value: Any, fields: Mapping[str, type], where: str) -> str:
    if not isinstance(value, dict):
        return f"{where.removesuffix('.')} is not an object"
    for name, kind in fields.items():
        if name not in value:
            return f"{where}{name} is missing"
        if not isinstance(value[name], kind):
            return f"{where}{name} is not {_WORDS[kind]}"
    return ""


def of_table(found: pa.Table, table: str, columns: Sequence[tuple[str, str]]) -> str:
    """What is in a table of these (column, type) that no run writes, in words; empty where nothing is."""
    import pyarrow.compute as pc

    never = _NEVER_NULL.get(table, ())
    for name, kind in columns:
        column = found[name]
        if column.null_count and (name in KEYS or never == "all" or name in never):
            return f"{name} is missing in {column.null_count} of {len(column)} rows"
        if kind == "double" and (table, name) not in _UNBOUNDED:
            most = pc.max(pc.abs(column)).as_py()
            if most is not None and most > _MOST:
                return f"{name} is {most:g}, and nothing above {_MOST:g} was measured"
    return ""
