"""Finds in stored files what no run writes and no reader could use, before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.protocol import STAGES
from runner.errors import first_problem
from runner.text import in_a_line, plural

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

KEYS = ("run_id", "cell_id", "repeat")

# Table -> its columns that are never null, beside the keys. Every row of these tables is one event of the protocol.
_NEVER_NULL = {
    "samples": "all",
    "operations": "all",
    "profile": "all",
    "metrics": ("name", "split", "step", "train_seconds"),
    # Every release wrote them, also of what was left out.
    "cells": ("image", "framework", "workload", "status"),
}

# Table -> its columns of numbers that are never negative: the protocol says so of events, and the plan of a cell.
_NOT_NEGATIVE = {
    "samples": ("index", "begin_seconds", "seconds", "steps", "items"),
    "operations": ("mop", "bytes", "buffers", "index", "begin_seconds", "seconds", "runs"),
    "profile": ("calls", "seconds", "steps", "step_seconds"),
    "metrics": ("step", "train_seconds"),
    "cells": ("batch",),
}
# (table, column) -> what it may be.
_ONE_OF = {("samples", "stage"): STAGES, ("cells", "status"): ("ok", "failed", "skipped")}

# Table -> what a row is, and the columns that no two rows of one repeat share.
_ONCE = {
    "samples": ("window", "index"),
    "operations": ("window", "operation", "direction", "size", "index"),
}

# Of a cell. A metric has a curve of its own in the report; the bench prints some fifty.
MOST_METRICS = 1000

# Nothing that is measured is larger, and arithmetic on it would overflow. The loss of a diverging network and the error of a wrong
# one may be larger.
_MOST = 1e18
_UNBOUNDED = {("metrics", "value"), ("parity", "error"), ("parity", "bound")}


# On a CPU they are processes, one for each of its logical CPUs at most.
_MOST_DEVICES = 100_000
# No run takes thirty years.
_MOST_SECONDS = 1e9

# A whole number of run.json, in the range of the store's columns: JSON's own have no limit, and a larger one is no double.
Whole = Annotated[int, Field(ge=0, lt=2**63)]


class _Stored(BaseModel):
    """What readers need of a part of run.json. Its other fields may be anything."""

    model_config = ConfigDict(strict=True)


class _Host(_Stored):
    cpu_model: str
    cpu_count: Whole
    memory_bytes: Whole
    kernel: str


class _Node(_Stored):
    node: str
    lost: str | None = None
    drained: bool = False


class _PlannedCell(_Stored):
    id: str
    image: str
    framework: str
    workload: str
    precision: str
    preset: str
    devices: Whole
    batch: Whole
    # Where a cell has another number of repeats than the run.
    repeats: Annotated[Whole, Field(ge=1)] | None = None


class _Repeat(_Stored):
    cell_id: str
    repeat: Whole


class _Expected(_Stored):
    """What a repeat of a cell takes, by the runner's estimate, and whether that is a guess."""

    seconds: Annotated[float, Field(gt=0, le=_MOST_SECONDS)]
    guessed: bool


class _Left(_Stored):
    """How many repeats are left, and how long they take by the runner's estimate."""

    repeats: Whole
    seconds: Annotated[float, Field(ge=0, le=_MOST_SECONDS)]


class _Skip(_Stored):
    """A planned combination that was left out."""

    cell_id: str | None = None
    image: str
    framework: str
    workload: str
    precision: str | None = None
    mode: str | None = None
    device_kind: str | None = None
    device_model: str | None = None
    devices: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    device_uuid: str | None = None
    reason: str


class _Imported(_Stored):
    """Where a run that another machine measured came from."""

    archive: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    when: str


class _Manifest(_Stored):
    run_id: str
    created: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\+00:00|Z)$")
    argv: list[str]
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    preset: str
    repeats: Whole
    engine: str
    host: _Host
    plan: list[_PlannedCell]
    devices: list[dict[str, Any]] | None = None
    # What a resumed run took over.
    reused: list[_Repeat] | None = None
    # The images that the run prepared, and how long each took.
    prepared: list[dict[str, Any]] = []
    imported: _Imported | None = None
    # When it was resumed.
    resumed: list[str] = []
    # By the ids of cells.
    expected: dict[str, _Expected] = {}
    left: _Left | None = None
    # What the cells took that ended well, of each kind.
    took: list[dict[str, Any]] = []
    # The GPUs that it lost.
    devices_lost: list[str] = []
    nodes: list[_Node] = []
    skips: list[_Skip] = []
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

    if table == "metrics" and (names := pc.count_distinct(rows["name"]).as_py()) > MOST_METRICS:
        return f"it has {names} metrics, and at most {MOST_METRICS} are kept"
    never = _NEVER_NULL.get(table, ())
    for name, kind in columns:
        column = rows[name]
        if column.null_count and (name in KEYS or never == "all" or name in never):
            return f"{name} is missing in {column.null_count} of {len(column)} rows"
        if kind == "double" and (table, name) not in _UNBOUNDED:
            most = pc.max(pc.abs(column)).as_py()
            if most is not None and most > _MOST:
                return f"{name} is {most:g}, and nothing above {_MOST:g} was measured"
        if name in _NOT_NEGATIVE.get(table, ()) and (wrong := _negative(column, kind)):
            return f"{name} is {wrong}"
        if allowed := _ONE_OF.get((table, name)):
            for value in set(column.unique().to_pylist()) - set(allowed):
                return f"{name} is {in_a_line(repr(value), 60)}, and it is one of {', '.join(allowed)}"
    if table == "cells" and (number := _no_devices(rows)) is not None:
        return f"devices is {number}, and a cell has 1 to {_MOST_DEVICES}"
    if (event := _ONCE.get(table)) and (twice := doubled(rows, event[1:])):
        return f"it holds {plural(twice, 'row')} twice: each {event[0]} of a repeat has an index of its own"
    return ""


def _no_devices(cells: pa.Table) -> int | None:
    """The number of devices of a cell that no machine has. Of what was left out it may be what was asked for."""
    import pyarrow.compute as pc

    ends = pc.min_max(cells["devices"]).as_py()
    if all(end is None or 1 <= end <= _MOST_DEVICES for end in ends.values()):
        return None
    # To compare a column with a value of Python would load pandas.
    rows = zip(cells["status"].to_pylist(), cells["devices"].to_pylist(), strict=True)
    counts = (count for status, count in rows if status != "skipped" and count is not None)
    return next((count for count in counts if not 1 <= count <= _MOST_DEVICES), None)


def _negative(column: pa.ChunkedArray, kind: str) -> str:
    """The number in a column that is none or below 0, in words; empty where there is none."""
    import pyarrow.compute as pc

    if kind == "double" and pc.any(pc.is_nan(column)).as_py():
        return "no number"
    least = pc.min(column).as_py()
    return f"{least:g}, and nothing below 0 is measured" if least is not None and least < 0 else ""


def doubled(rows: pa.Table, columns: Sequence[str]) -> int:
    """How many rows of one run are there once more, by these columns of their repeat.

    A window that counts twice would make an interval narrower than what was measured.
    """
    return len(rows) - len(first_of_each(rows, ("cell_id", "repeat", *columns)))


def first_of_each(rows: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """The places of the first row of each combination of values in these columns.

    Each row gets a number, which follows from its values alone. Arrow's own grouping would load its data sets and pandas, which no command
    needs.
    """
    import numpy as np

    number, most = np.zeros(len(rows), np.int64), 1
    for name in columns if len(rows) else ():
        # In one piece: a dictionary that holds null, too, is not unified.
        part = rows[name].combine_chunks().dictionary_encode("encode")
        count = len(part.dictionary)
        if most * count >= 2**63:
            distinct, number = np.unique(number, return_inverse=True)
            most = len(distinct)
        # Not by to_numpy: it loads pandas.
        places = np.from_dlpack(part.indices).astype(np.int64)
        number, most = number * count + places, most * count
    firsts: npt.NDArray[np.int64] = np.unique(number, return_index=True)[1]
    return firsts
