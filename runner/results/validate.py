"""Finds in stored files what no run writes and no reader could use, before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.errors import first_problem

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = ("run_id", "cell_id", "repeat")

# Table -> its columns that are never null, beside the keys. Every row of these tables is one event of the protocol.
_NEVER_NULL = {
    "samples": "all",
    "operations": "all",
    "profile": "all",
    "metrics": ("name", "split", "step", "train_seconds"),
}

# Nothing that is measured is larger, and arithmetic on it would overflow. The loss of a diverging network and the error of a wrong
# one may be larger.
_MOST = 1e18
_UNBOUNDED = {("metrics", "value"), ("parity", "error"), ("parity", "bound")}


class _Stored(BaseModel):
    """What readers need of a part of run.json. Its other fields may be anything."""

    model_config = ConfigDict(strict=True)


class _Host(_Stored):
    cpu_model: str
    cpu_count: int
    memory_bytes: int
    kernel: str


class _PlannedCell(_Stored):
    id: str
    image: str
    framework: str
    workload: str
    precision: str
    preset: str
    devices: int
    batch: int


class _Repeat(_Stored):
    cell_id: str
    repeat: int


class _Manifest(_Stored):
    run_id: str
    created: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\+00:00|Z)$")
    argv: list[str]
    seed: int
    preset: str
    repeats: int
    engine: str
    host: _Host
    plan: list[_PlannedCell]
    devices: list[dict[str, Any]] | None = None
    # What a resumed run took over.
    reused: list[_Repeat] | None = None
    bench_sha256: str
    runner_version: str


def of_manifest(manifest: Mapping[str, Any]) -> str:
    """The first field of run.json that no reader could use, in words; empty where all is well."""
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as error:
        return first_problem(error)
    return ""


def of_table(rows: pa.Table, table: str, columns: Sequence[tuple[str, str]]) -> str:
    """What is in a table of these (column, type) that no run writes, in words; empty where nothing is."""
    import pyarrow.compute as pc

    never = _NEVER_NULL.get(table, ())
    for name, kind in columns:
        column = rows[name]
        if column.null_count and (name in KEYS or never == "all" or name in never):
            return f"{name} is missing in {column.null_count} of {len(column)} rows"
        if kind == "double" and (table, name) not in _UNBOUNDED:
            most = pc.max(pc.abs(column)).as_py()
            if most is not None and most > _MOST:
                return f"{name} is {most:g}, and nothing above {_MOST:g} was measured"
    return ""
