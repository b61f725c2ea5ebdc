"""References measured with this project: each a Parquet file that holds the samples themselves, its manifest and their hashes.

The file's rows are the steady windows of its cells, by repeat; its metadata holds the manifest as JSON: name, origin, and for
each cell its facts, its ceilings and the sha256 of its samples. The sha256 of the manifest is the reference's own: it stands for all
that is inside. A reference holds only cells that passed parity.

A reference of several runs of one machine has a session for each run, and each repeat says which. It is of format 2. A reference of one
run is of format 1, as releases before there were sessions wrote it.
A file often comes from somebody else. So all that is read is bounded and checked, and a file that was changed is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import statistics
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from runner.errors import UserError, first_problem
from runner.results.gpu_facts import CLOCK_REASONS
from runner.results.on_disk.observed import OF_TELEMETRY, Observed
from runner.results.on_disk.schema import open_parquet, other_kind
from runner.results.rows import floats
from runner.results.statistics import Array, fewest_windows
from runner.results.store import read_bytes, write_bytes
from runner.results.validate import Frozen
from runner.verify.probes.ceilings import Ceilings
from runner.verify.references import SUFFIX, files
from runner.verify.references.facts import Facts

# Telemetry in short: a cell's clock, and how long something held the clock back, over its steady windows. Pure.

Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=100)]

# The facts that have no place of their own.
_TELEMETRY_MEDIANS = tuple(name for name in OF_TELEMETRY if name not in ("sm_megahertz", "foreign_process_count"))

# Older names of the reasons, in references that were saved before each had one name.
_EARLIER_NAMES = {
    "power cap": "power",
    "software thermal slowdown": "heat",
    "hardware thermal slowdown": "heat",
}


class Telemetry(Frozen):
    """The GPUs while a cell ran. None, or no entry: nothing was recorded."""

    sm_megahertz: Annotated[float, Field(ge=0, lt=1e6)] | None = None  # median
    throttled: dict[Text, Share] = Field(default={})  # reason -> share of the time
    # Column of the table `telemetry` -> median: other clocks, heat, power. References saved before have none.
    medians: Annotated[dict[Text, Annotated[float, Field(ge=0, lt=1e9)]], Field(max_length=20)] = Field(default={})

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `medians` where there are none: references saved before keep their digests."""
        fields: dict[str, Any] = dump(self)
        return {name: value for name, value in fields.items() if value or name != "medians"}

    def share(self, reason: str) -> float:
        """The share of the time for which a reason held the clock back."""
        return self.throttled.get(reason) or self.throttled.get(_EARLIER_NAMES.get(reason, ""), 0.0)


def summarise_telemetry(
    rows: Sequence[Mapping[str, Any]], spans: Sequence[tuple[float, float]], seen: Observed
) -> Telemetry | None:
    """The rows of the table `telemetry` of one repeat, inside the spans (begin, end in seconds) of its steady windows, and what else was
    `seen` of the machine meanwhile."""
    if not spans:
        return None
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    inside = [row for row in rows if row["device"] != "cpu" and begin <= row["seconds"] <= end]
    clocks = [row["sm_megahertz"] for row in inside if row.get("sm_megahertz") is not None]
    reasons = [int(row["throttle_reasons"]) for row in inside if row.get("throttle_reasons") is not None]
    medians = {name: value for name in _TELEMETRY_MEDIANS if isinstance(value := seen.get(name), float)}
    if not clocks and not reasons and not medians:
        return None
    counts = {name: sum(bool(bits & bit) for bits in reasons) for bit, name in CLOCK_REASONS.items()}
    shares = {name: count / len(reasons) for name, count in counts.items() if count}
    return Telemetry(sm_megahertz=statistics.median(clocks) if clocks else None, throttled=shares, medians=medians)


FORMAT = 2
MAX_BYTES = 256 * 2**20
MAX_MANIFEST_BYTES = 8 * 2**20
MAX_ROWS = 5_000_000
MAX_ROW_BYTES = 20  # three whole numbers of four bytes, and a double
MAX_RUNS = 1000
FEWEST_WINDOWS = fewest_windows()  # of a repeat: six. The 95 % interval of one repeat needs as many

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
INDEX = "index:"  # begins the name of a reference that is a cell of an index
PUBLISHED = "published"  # the numbers of the founding documents, in the list of references
_MANIFEST, _DIGEST = b"dlbench_reference", b"dlbench_reference_sha256"

Seconds = Annotated[float, Field(gt=0, lt=1e6, allow_inf_nan=False)]


class SavedError(UserError):
    """A reference that cannot be used or made; the message names file, place and fix."""


class SavedCell(Frozen):
    """One measured cell: its facts, and the seconds a step of each steady window, by repeat.

    `session_of` has each repeat's run, by its place in the reference's `run_ids`. It is empty in a reference of one run.
    """

    facts: Facts
    repeats: Annotated[tuple[tuple[Seconds, ...], ...], Field(min_length=1, max_length=10_000)]
    session_of: tuple[Annotated[int, Field(ge=0, lt=MAX_RUNS)], ...] = ()
    ceilings: Ceilings | None = None
    telemetry: Telemetry | None = None

    @model_validator(mode="after")
    def _has_windows(self) -> SavedCell:
        if min(map(len, self.repeats)) < FEWEST_WINDOWS:
            raise ValueError(f"a repeat has too few windows, fewer than {FEWEST_WINDOWS}; measure longer")
        if len(self.session_of) not in (0, len(self.repeats)):
            raise ValueError(f"{len(self.repeats)} repeats have {len(self.session_of)} sessions")
        return self

    def sessions(self) -> dict[int, list[Array]]:
        """The repeats' windows, seconds a step, by their run."""
        sessions: dict[int, list[Array]] = {}
        for run, repeat in zip(self.session_of or (0,) * len(self.repeats), self.repeats, strict=True):
            sessions.setdefault(run, []).append(np.array(repeat))
        return sessions

    @property
    def samples_sha256(self) -> str:
        """Of every window as a little-endian double, each repeat after its length."""
        digest = hashlib.sha256()
        for repeat in self.repeats:
            digest.update(struct.pack(f"<q{len(repeat)}d", len(repeat), *repeat))
        return digest.hexdigest()

    @property
    def key(self) -> str:
        """The order of the cells of a reference."""
        return json.dumps(self.facts.model_dump(), sort_keys=True)


class Reference(Frozen):
    """A named set of measured cells."""

    name: Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
    created: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\+00:00|Z)$")]
    run_ids: Annotated[
        tuple[Annotated[str, Field(max_length=200)], ...], Field(min_length=1, max_length=MAX_RUNS)
    ]  # oldest first
    runner_version: Annotated[str, Field(max_length=100)]
    cells: Annotated[tuple[SavedCell, ...], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _has_its_runs(self) -> Reference:
        several = len(self.run_ids) > 1
        for cell in self.cells:
            if several != bool(cell.session_of) or max(cell.session_of, default=0) >= len(self.run_ids):
                raise ValueError("a repeat's session is none of the runs; save the reference again")
        return self

    @property
    def of_machines(self) -> bool:
        """True for a cell of an index of references, whose runs are machines of one model. No saved reference has such a name."""
        return self.name.startswith(INDEX)

    @property
    def runs(self) -> str:
        """The runs for a person."""
        first, *others = self.run_ids
        return f"runs {first} to {others[-1]} ({len(self.run_ids)} sessions)" if others else f"run {first}"

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
                **({"sessions": cell.session_of} if cell.session_of else {}),
            }
            for cell in self.cells
        ]
        several = len(self.run_ids) > 1
        runs = {"format": 2, "run_ids": self.run_ids} if several else {"format": 1, "run_id": self.run_ids[0]}
        fixed = self.model_dump(exclude={"cells", "run_ids"}) | runs | {"cells": cells}
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
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue().to_pybytes())


def _schema() -> Any:
    import pyarrow as pa

    whole = pa.int32()
    return pa.schema([("cell", whole), ("repeat", whole), ("window", whole), ("step_seconds", pa.float64())])


def read(path: Path) -> Reference:
    """A reference from its file, with every hash checked. Raises SavedError."""
    import pyarrow as pa

    try:
        data = read_bytes(path, MAX_BYTES)
        with open_parquet(data) as file:
            metadata = file.schema_arrow.metadata or {}
            if not _is_small(file.metadata) or len(metadata.get(_MANIFEST, b"")) > MAX_MANIFEST_BYTES:
                raise SavedError(
                    f"{path}: it holds more rows or a longer manifest than any reference; get the file again"
                )
            if _MANIFEST not in metadata:
                raise SavedError(
                    f"{path}: it has no manifest, so it is no reference; `runner reference save` makes one"
                )
            if not file.schema_arrow.remove_metadata().equals(_schema()):
                raise SavedError(f"{path}: its columns are not those of a reference; export it again")
            table = file.read(use_threads=False)
    # A name in the file that is no UTF-8 makes pyarrow raise a ValueError of Python's.
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SavedError(_unreadable(path, error)) from None
    return _checked(path, metadata, {name: floats(table, name) for name in table.column_names})


def _is_small(metadata: Any) -> bool:
    """True if the rows of a Parquet file are no more than a reference has, by every count that the file holds of them."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    unpacked: int = sum(group.total_byte_size for group in groups)
    rows: int = max(metadata.num_rows, sum(group.num_rows for group in groups))
    return 0 <= rows <= MAX_ROWS and unpacked <= MAX_ROWS * MAX_ROW_BYTES


def _checked(path: Path, metadata: Mapping[bytes, bytes], columns: Mapping[str, Array]) -> Reference:
    """The reference from the manifest and the samples, when they belong together."""
    try:
        manifest = json.loads(metadata[_MANIFEST])
        if manifest.get("format") not in (1, FORMAT):
            raise SavedError(
                f"{path}: format {repr(manifest.get('format'))[:80]} is not 1 or {FORMAT}; use a newer runner"
            )
        samples = _by_cell(columns, [entry["windows"] for entry in manifest["cells"]])
        cells = [
            {name: entry[name] for name in ("facts", "ceilings", "telemetry")}
            | {"repeats": repeats, "session_of": entry.get("sessions", ())}
            for entry, repeats in zip(manifest["cells"], samples, strict=True)
        ]
        fields = {name: manifest[name] for name in ("name", "created", "runner_version")}
        fields["run_ids"] = manifest["run_ids"] if manifest["format"] == FORMAT else [manifest["run_id"]]
        reference = Reference.model_validate(fields | {"cells": cells})
    except ValidationError as error:
        raise SavedError(f"{path}: {first_problem(error)}; get the file again") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SavedError(f"{path}: its manifest is broken ({error}); get the file again") from None
    if (
        metadata[_MANIFEST] != reference.manifest
        or metadata.get(_DIGEST, b"").decode("ascii", "replace") != reference.sha256
    ):
        raise SavedError(f"{path}: its samples or its manifest are not those it was saved with; get the file again")
    return reference


def _unreadable(path: Path, error: Exception) -> str:
    """The sentence on a file that pyarrow cannot read: by its first bytes it may be something else."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if kind := other_kind(file.read(200)):
            wants = "a reference keeps samples, not single numbers, in the file that `runner reference export` writes"
            return f"{path} is no reference: {kind} ({wants})"
    return f"{path} cannot be read as Parquet ({error}); get the file again"


def _by_cell(columns: Mapping[str, Array], windows: Sequence[Sequence[int]]) -> list[list[list[float]]]:
    """The samples cut up as the manifest says. Raises ValueError where the rows say otherwise."""
    seconds = columns["step_seconds"]
    # The counts are compared with the rows before anything is made of them: they come from the same stranger.
    every = [count for counts in windows for count in counts]
    if not all(0 < count <= len(seconds) for count in every) or sum(every) != len(seconds):
        raise ValueError(f"its counts of windows are not those of its {len(seconds)} rows")
    place, cells = 0, []
    for at, counts in enumerate(windows):
        repeats = []
        for number, count in enumerate(counts, start=1):
            rows = slice(place, place + count)
            expected = {"cell": at, "repeat": number, "window": np.arange(count)}
            if not all(bool(np.all(columns[name][rows] == value)) for name, value in expected.items()):
                raise ValueError(f"the rows of cell {at} repeat {number} are not in their place")
            repeats.append(seconds[rows].tolist())
            place += count
        cells.append(repeats)
    return cells


class Shelf:
    """The folders of references. A new one goes into the first folder; of two with one name the first folder's is used."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)

    def paths(self) -> dict[str, Path]:
        """Every reference's file by name."""
        paths: dict[str, Path] = {}
        for folder in self.folders:
            for path in files(folder):
                paths.setdefault(path.name.removesuffix(SUFFIX), path)
        return paths

    def all(self, say: Callable[[str], None]) -> list[Reference]:
        """Every reference that can be read; `say` is told why another one is passed over. Raises SavedError where none can be read."""
        found, errors = [], []
        for path in self.paths().values():
            try:
                found.append(read(path))
            except SavedError as error:
                errors.append(error)
        if errors and not found:
            raise errors[0]
        for broken in errors:
            say(f"passed over: {broken}")
        return found

    def find(self, name: str) -> Reference:
        """One reference by its name, or by its file. Raises SavedError."""
        paths = self.paths()
        if name in paths:
            return read(paths[name])
        if name == PUBLISHED:
            raise SavedError(
                "'published' is no saved reference: its numbers have no samples. `runner reference show published` prints them"
            )
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


def make(name: str, created: str, run_ids: Sequence[str], runner_version: str, cells: Iterable[SavedCell]) -> Reference:
    """A reference of some runs, oldest first; its cells in an order of their content. Raises SavedError."""
    if not NAME.fullmatch(name):
        raise SavedError(f"--name: {name!r} cannot be a name; use lower-case letters, digits, and . _ - inside")
    if name == PUBLISHED:
        raise SavedError("--name: 'published' names the numbers that the founding documents published; choose another")
    if len(run_ids) > MAX_RUNS:
        raise SavedError(f"{len(run_ids)} runs: a reference holds at most {MAX_RUNS}; name fewer")
    ordered = tuple(sorted(cells, key=lambda cell: (cell.key, cell.samples_sha256)))
    return Reference(name=name, created=created, run_ids=tuple(run_ids), runner_version=runner_version, cells=ordered)
