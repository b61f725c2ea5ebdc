"""References measured with this project: each a Parquet file that holds the samples themselves, its manifest and their hashes.

The file's rows are the steady windows of its cells, by repeat; its metadata holds the manifest as JSON: name, origin, and for
each cell its facts, its ceilings and the sha256 of its samples. The sha256 of the manifest is the reference's own: it stands for all
that is inside. A reference holds only cells that passed parity.
A file often comes from somebody else. So all that is read is bounded and checked, and a file that was changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from runner.errors import UserError
from runner.results.store import write_bytes
from runner.verify.ceilings import Ceilings
from runner.verify.references.facts import Facts
from runner.verify.references.telemetry import Telemetry

FORMAT = 1
MAX_BYTES = 256 * 2**20
MAX_MANIFEST_BYTES = 16 * 2**20
MAX_ROWS = 5_000_000
FEWEST_WINDOWS = 6  # of a repeat: fewer carry no interval

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
SUFFIX = ".reference.parquet"
_MANIFEST, _DIGEST = b"dlbench_reference", b"dlbench_reference_sha256"

Seconds = Annotated[float, Field(gt=0, lt=1e6, allow_inf_nan=False)]


class SavedError(UserError):
    """A reference that cannot be used or made; the message names file, place and fix."""


class SavedCell(BaseModel):
    """One measured cell: its facts, and the seconds a step of each steady window, by repeat."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    facts: Facts
    repeats: Annotated[tuple[tuple[Seconds, ...], ...], Field(min_length=1, max_length=10_000)]
    ceilings: Ceilings | None = None
    telemetry: Telemetry | None = None

    @model_validator(mode="after")
    def _has_windows(self) -> SavedCell:
        if min(map(len, self.repeats)) < FEWEST_WINDOWS:
            raise ValueError(f"a repeat has fewer than {FEWEST_WINDOWS} windows; measure longer")
        return self

    @property
    def samples_sha256(self) -> str:
        """Of every window as a little-endian double, each repeat after its length."""
        digest = hashlib.sha256()
        for repeat in self.repeats:
            digest.update(struct.pack(f"<q{len(repeat)}d", len(repeat), *repeat))
        return digest.hexdigest()

    @property
    def key(self) -> str:
        """What orders the cells of a reference."""
        return json.dumps(self.facts.model_dump(), sort_keys=True)


class Reference(BaseModel):
    """A named set of measured cells."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
    created: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\+00:00|Z)$")]
    run_id: Annotated[str, Field(max_length=200)]
    runner_version: Annotated[str, Field(max_length=100)]
    cells: Annotated[tuple[SavedCell, ...], Field(min_length=1, max_length=10_000)]

    @property
    def manifest(self) -> bytes:
        """Everything but the samples, as canonical JSON; each cell has the hash of its samples."""
        cells = [
            {
                "facts": cell.facts.model_dump(),
                "ceilings": cell.ceilings.model_dump() if cell.ceilings else None,
                "telemetry": cell.telemetry.model_dump() if cell.telemetry else None,
                "windows": [len(repeat) for repeat in cell.repeats],
                "samples_sha256": cell.samples_sha256,
            }
            for cell in self.cells
        ]
        fixed = self.model_dump(exclude={"cells"}) | {"format": FORMAT, "cells": cells}
        return json.dumps(fixed, sort_keys=True, separators=(",", ":")).encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.manifest).hexdigest()


def to_bytes(reference: Reference) -> bytes:
    """The reference as one Parquet file; the same reference gives the same bytes with the same pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells: list[int] = []
    repeats: list[int] = []
    windows: list[int] = []
    seconds: list[float] = []
    for at, cell in enumerate(reference.cells):
        for number, repeat in enumerate(cell.repeats, start=1):
            cells += [at] * len(repeat)
            repeats += [number] * len(repeat)
            windows += range(len(repeat))
            seconds += repeat
    metadata = {_MANIFEST: reference.manifest, _DIGEST: reference.sha256.encode()}
    columns = {"cell": cells, "repeat": repeats, "window": windows, "step_seconds": seconds}
    table = pa.Table.from_pydict(columns, schema=_schema().with_metadata(metadata))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def _schema() -> Any:
    import pyarrow as pa

    whole = pa.int32()
    return pa.schema([("cell", whole), ("repeat", whole), ("window", whole), ("step_seconds", pa.float64())])


def read(path: Path) -> Reference:
    """A reference from its file, with every hash checked. Raises SavedError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size > MAX_BYTES:
            raise SavedError(f"{path}: it is larger than {MAX_BYTES} bytes, so it is no reference; get the file again")
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            if file.metadata.num_rows > MAX_ROWS or len(metadata.get(_MANIFEST, b"")) > MAX_MANIFEST_BYTES:
                raise SavedError(
                    f"{path}: it holds more rows or a longer manifest than any reference; get the file again"
                )
            if _MANIFEST not in metadata:
                raise SavedError(
                    f"{path}: it has no manifest, so it is no reference; `runner reference save` makes one"
                )
            if not file.schema_arrow.remove_metadata().equals(_schema()):
                raise SavedError(f"{path}: its columns are not those of format {FORMAT}; export it again")
            columns = file.read().to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise SavedError(f"{path} cannot be read as Parquet ({error}); get the file again") from None
    return _checked(path, metadata, columns)


def _checked(path: Path, metadata: Mapping[bytes, bytes], columns: Mapping[str, list[Any]]) -> Reference:
    """The reference from the manifest and the samples, when they belong together."""
    try:
        manifest = json.loads(metadata[_MANIFEST])
        if manifest.get("format") != FORMAT:
            raise SavedError(f"{path}: format {manifest.get('format')!r} is not {FORMAT}; export it with this release")
        samples = _by_cell(columns, [entry["windows"] for entry in manifest["cells"]])
        cells = [
            {name: entry[name] for name in ("facts", "ceilings", "telemetry")} | {"repeats": repeats}
            for entry, repeats in zip(manifest["cells"], samples, strict=True)
        ]
        fields = {name: manifest[name] for name in ("name", "created", "run_id", "runner_version")}
        reference = Reference.model_validate(fields | {"cells": cells})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise SavedError(f"{path}: {field}: {first['msg']}; get the file again") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SavedError(f"{path}: its manifest is broken ({error}); get the file again") from None
    if (
        metadata[_MANIFEST] != reference.manifest
        or metadata.get(_DIGEST, b"").decode("ascii", "replace") != reference.sha256
    ):
        raise SavedError(f"{path}: its samples or its manifest are not those it was saved with; get the file again")
    return reference


def _by_cell(columns: Mapping[str, list[Any]], windows: Sequence[Sequence[int]]) -> list[list[list[float]]]:
    """The samples cut up as the manifest says. Raises ValueError where the rows say otherwise."""
    seconds = columns["step_seconds"]
    place, cells = 0, []
    for at, counts in enumerate(windows):
        repeats = []
        for number, count in enumerate(counts, start=1):
            rows = slice(place, place + count)
            said = zip(columns["cell"][rows], columns["repeat"][rows], columns["window"][rows], strict=True)
            if list(said) != [(at, number, window) for window in range(count)]:
                raise ValueError(f"the rows of cell {at} repeat {number} are not in their place")
            repeats.append(seconds[rows])
            place += count
        cells.append(repeats)
    if place != len(seconds):
        raise ValueError("there are rows of no cell")
    return cells


class Shelf:
    """The folders of references. A new one goes into the first folder; of two with one name the first folder's is used."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)

    def paths(self) -> dict[str, Path]:
        """Every reference's file by name."""
        paths: dict[str, Path] = {}
        for folder in self.folders:
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                paths.setdefault(path.name.removesuffix(SUFFIX), path)
        return paths

    def all(self) -> list[Reference]:
        """Every reference. Raises SavedError for the first that is broken."""
        return [read(path) for path in self.paths().values()]

    def find(self, name: str) -> Reference:
        """One reference by its name, or by its file. Raises SavedError."""
        paths = self.paths()
        if name in paths:
            return read(paths[name])
        if name.endswith(".parquet") and Path(name).is_file():
            return read(Path(name))
        names = ", ".join(paths) or "none yet; `runner reference save RUN --name NAME` makes one"
        raise SavedError(f"there is no reference {name!r}; there are: {names}")

    def put(self, reference: Reference, replace: bool = False) -> Path:
        """Keep a reference. Raises SavedError where one of its name is there and is another."""
        path = self.folders[0] / f"{reference.name}{SUFFIX}"
        if path.exists() and not replace and read(path).sha256 != reference.sha256:
            raise SavedError(f"{path} holds another reference; use --replace, or another --name")
        write_bytes(path, to_bytes(reference))
        return path


def make(name: str, created: str, run_id: str, runner_version: str, cells: Iterable[SavedCell]) -> Reference:
    """A reference, its cells in an order of their content. Raises SavedError."""
    if not NAME.fullmatch(name):
        raise SavedError(f"--name: {name!r} cannot be a name; use lower-case letters, digits, and . _ - inside")
    if name == "published":
        raise SavedError("--name: 'published' names the numbers that the founding documents published; choose another")
    ordered = tuple(sorted(cells, key=lambda cell: (cell.key, cell.samples_sha256)))
    if not ordered:
        raise SavedError(
            f"run {run_id} has no cell that ended well, passed parity and has {FEWEST_WINDOWS} windows a repeat; a reference needs one"
        )
    return Reference(name=name, created=created, run_id=run_id, runner_version=runner_version, cells=ordered)
