"""Finds in run.json what no run writes and no reader could use, before anything is computed from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from runner.errors import first_problem

# No run takes thirty years.
_MOST_SECONDS = 1e9

# A whole number of run.json, in the range of the store's columns: JSON's own have no limit, and a larger one is no double.
Whole = Annotated[int, Field(ge=0, lt=2**63)]

_Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _is_a_moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


# The digits are named: \d also takes those of other scripts.
Moment = Annotated[
    str,
    Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\+00:00|Z)$"),
    AfterValidator(_is_a_moment),
]


class Frozen(BaseModel):
    """A record that nobody changes, and that has no other fields than these."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Strict(BaseModel):
    """A record whose values have their types: no text stands for a number."""

    model_config = ConfigDict(strict=True)


class _Stored(Strict):
    """The part of run.json that readers need. Its other fields may be anything."""


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
    mode: str = "default"
    device_kind: str = ""
    device_model: str = ""
    device_uuid: str = ""
    preset: str
    seed: _Seed = 0
    lock_sha256: str = ""
    scaling: str = ""
    # "each" where every repeat has a seed of its own.
    seeds: str = ""
    # On a CPU they are processes, one for each of its logical CPUs at most.
    devices: Annotated[int, Field(ge=1, le=100_000)]
    batch: Annotated[int, Field(ge=0, lt=2**31)]
    # The digest of the code that was planned; null where no release noted it.
    code_sha256: _Sha256 | None = None
    # The number of repeats of a cell that has another one than the run.
    repeats: Annotated[Whole, Field(ge=1)] | None = None


class _Repeat(_Stored):
    cell_id: str
    repeat: Whole


class _Expected(_Stored):
    """The runner's estimate of a repeat of a cell, and whether it is a guess."""

    seconds: Annotated[float, Field(gt=0, le=_MOST_SECONDS)]
    guessed: bool


class _Left(_Stored):
    """How many repeats are left, and how long they take by the runner's estimate."""

    repeats: Whole
    seconds: Annotated[float, Field(ge=0, le=_MOST_SECONDS)]


class _Skip(_Stored):
    """A planned combination that was left out. Each field becomes a column, so another one is refused."""

    model_config = ConfigDict(extra="forbid")

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
    """The origin of a run that another machine measured."""

    archive: str
    sha256: _Sha256
    when: str
    # Name of a parcel -> its SHA-256, as it was imported.
    parcels: dict[str, _Sha256] = {}


class _Options(_Stored):
    """The options that decide how a parcel is admitted, and what a report answers."""

    data: str | None = None
    to_loss: Annotated[float, Field(ge=0, le=1000)] | None = None


class _Manifest(_Stored):
    run_id: str
    created: Moment
    argv: list[str]
    seed: _Seed
    preset: str
    repeats: Whole
    engine: str
    host: _Host
    plan: list[_PlannedCell]
    options: _Options | None = None
    devices: list[dict[str, Any]] | None = None
    # The repeats that a resumed run took over.
    reused: list[_Repeat] | None = None
    # The images that the run prepared, and how long each took.
    prepared: list[dict[str, Any]] = []
    imported: _Imported | None = None
    # When it was resumed.
    resumed: list[str] = []
    # By the ids of cells.
    expected: dict[str, _Expected] = {}
    left: _Left | None = None
    # Seconds of the cells that ended well, of each kind.
    took: list[dict[str, Any]] = []
    # The GPUs that it lost.
    devices_lost: list[str] = []
    nodes: list[_Node] = []
    skips: list[_Skip] = []
    # Of each foreign image its digest, by its address.
    foreign: dict[str, str] = {}
    bench_sha256: str
    runner_version: str


def of_manifest(manifest: Mapping[str, Any]) -> str:
    """The first field of run.json that no reader could use, in words; empty where all is well."""
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as error:
        return first_problem(error)
    faults = ((name, _fault_of({name: value})) for name, value in manifest.items())
    return next((f"{ascii(name)[1:-1][:200]}: {fault}" for name, fault in faults if fault), "")


def _fault_of(document: Mapping[str, Any]) -> str:
    """Why the document cannot be written as JSON in UTF-8; empty where it can be. JSON can escape one half of a surrogate pair."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "it holds one half of a surrogate pair, which is no text"
    except RecursionError:
        return "it is nested too deeply"
    return ""
