"""The Parquet tables of a run, as they lie on disk:
results/<run id>/{cells,samples,metrics,parity,telemetry,...}/<cell id>.r<repeat>.parquet.

One file a table for each repeat of a cell, written aside, synced and renamed the moment that repeat ends: a killed run loses
none that ended. `cells` is renamed last, so a repeat counts as ended exactly when its `cells` file is there. Beside the tables lie
run.json (the options, the plan, what was left out, and on which machine), events/<name>.jsonl (each event as the cell
printed it) and logs/<name>.log (the end of its standard error).

Units stand in the column names: seconds, bytes, items_per_second. A time inside a cell counts from the start of that
cell's process; started_unix puts that start on the host's wall clock.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import rules
from runner.errors import UserError
from runner.results import validate
from runner.results.parquet import pages
from runner.text import in_a_line

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1

# In characters: two paths and what is wrong.
_LONGEST_ERROR = 20_000

# The keys that every table begins with.
_KEYS = [("run_id", "string"), ("cell_id", "string"), ("repeat", "int32")]

# table -> [(column, Arrow type)]. Every column may be null unless it is a key.
TABLES: dict[str, list[tuple[str, str]]] = {
    "cells": [
        *_KEYS,
        # the cell
        ("image", "string"),
        ("framework", "string"),
        ("workload", "string"),
        ("precision", "string"),
        ("preset", "string"),
        ("mode", "string"),  # how the framework compiles: "default" is the framework's own habit
        ("device_kind", "string"),  # cpu | cuda
        ("device_model", "string"),  # as the host names it
        ("devices", "int32"),  # on a CPU, processes or virtual devices that share it
        # Of several devices: weak (batch is that of each) | strong (that of all); else empty or null.
        ("scaling", "string"),
        ("device_uuid", "string"),  # the one GPU that it was for (--each-gpu); empty: any of its model
        ("batch", "int32"),
        ("seed", "int64"),
        ("engine", "string"),
        # Where it ran, and which attempt at it this was, in a run over several nodes; else null.
        ("node", "string"),
        ("attempt", "string"),
        # what ran it
        # Docker: the image's id or registry digest; venv: sha256 of the lock and interpreter.
        ("image_digest", "string"),
        ("lock_sha256", "string"),
        # of all the bench sources that the cell had beside it
        ("bench_sha256", "string"),
        # of the sources that this cell runs (bench/identity.py): of the bench's core and its workload, and of all
        ("core_sha256", "string"),
        ("code_sha256", "string"),
        ("device_uuids", "list<string>"),  # as the cell itself saw them
        ("given_uuids", "list<string>"),  # as the engine was asked for them
        ("device_name", "string"),  # as the framework names it
        ("compute_capability", "string"),
        ("framework_version", "string"),
        ("python_version", "string"),
        ("cuda_version", "string"),
        ("cudnn_version", "string"),
        ("driver_version", "string"),
        ("environment_json", "string"),  # the whole environment event
        ("data_source", "string"),  # files | generated
        ("data_sha256", "string"),
        # how it ended
        ("status", "string"),  # ok | failed | skipped
        # The protocol's kinds, and: protocol, parity, time-limit, hang, crash, wrong-device, engine, gpu-lost, node-lost, xid.
        ("error_kind", "string"),
        ("reason", "string"),  # for failed and skipped: the sentence for a person
        ("hint", "string"),  # for failed: how to fix it, where that is known
        ("log_tail", "string"),
        ("exit_code", "int32"),
        ("stop", "string"),  # why sampling stopped: noise | time | count
        ("noise", "double"),  # half width of the 95 % interval of the median step time, relative to it
        ("short", "bool"),  # shorter than the specification's run: its total is not the published total
        ("parity_passed", "bool"),
        ("started_unix", "double"),
        ("wall_seconds", "double"),  # from the engine's start call to the process's end, as the host saw it
        *((rules.seconds_column(phase), "double") for phase in rules.PHASES),
        ("first_step_seconds", "double"),
        # By so much the driver's cache of kernels compiled from PTX grew meanwhile. Cells at once share it. Null on a CPU.
        ("jit_cache_grew_bytes", "int64"),
        ("steps", "int64"),
        ("host_peak_bytes", "int64"),
        ("device_peak_bytes", "int64"),
        # the most that was used of a GPU in the steady windows, as the driver told it: the driver's own part and other processes' are in it
        ("device_used_bytes", "int64"),
        ("kernel_share", "double"),  # of a step's time, in which kernels ran on the GPU; null where that is not known
        # over the steady windows, of all its GPUs together, as telemetry saw them from the host; on a CPU, of its packages
        ("energy_joules", "double"),
        ("energy_source", "string"),  # counter: the device's own (NVML's, RAPL's); power: the integral of its samples
        ("joules_per_item", "double"),
        ("mean_power_watts", "double"),
        ("max_temperature_celsius", "double"),
        ("throttled", "bool"),  # a GPU slowed down for heat, or on its power supply's order
        # GPU cells: "proved by NVML" where the host saw a process of the cell on each of its GPUs, else "not proved" and why.
        ("device_proof", "string"),
        # The framework's version: "proved by the lock" where the image's lock pins it, else "not proved" and why. Null in older runs.
        ("version_proof", "string"),
        ("foreign_processes", "list<string>"),  # who else computed on its GPUs meanwhile; null for a CPU
        ("throttled_by", "list<string>"),  # every reason that was seen; "power cap" alone is a GPU at its work
        ("schema_version", "int32"),
    ],
    "samples": [
        *_KEYS,
        ("index", "int32"),
        ("stage", "string"),  # first | warm-up | steady: only steady ones are summarised
        ("begin_seconds", "double"),
        ("seconds", "double"),
        ("steps", "int32"),
        ("items", "int64"),
    ],
    "operations": [
        *_KEYS,
        ("operation", "string"),
        ("direction", "string"),  # forward | gradient | step | copy | reduce
        ("size", "string"),
        ("mop", "double"),  # million floating-point operations in one run
        ("bytes", "int64"),  # the least that one run reads and writes
        ("buffers", "int32"),  # so many sets of inputs took turns
        ("index", "int32"),
        ("begin_seconds", "double"),
        ("seconds", "double"),
        ("runs", "int64"),
    ],
    "left_out": [
        *_KEYS,
        ("what", "string"),  # a point or an operation that the cell did not measure
        ("reason", "string"),
    ],
    "profile": [
        *_KEYS,
        ("name", "string"),  # of an operation or kernel, as the framework's profiler calls it
        ("on", "string"),  # cpu | cuda
        ("calls", "int64"),
        ("seconds", "double"),  # its own, without what it calls, of all its calls together
        ("steps", "int32"),  # so many were profiled, after those that were measured
        ("step_seconds", "double"),  # of one of them, by the clock, under the profiler
    ],
    "metrics": [
        *_KEYS,
        ("name", "string"),
        ("split", "string"),
        ("step", "int64"),
        ("train_seconds", "double"),
        ("value", "double"),  # null: it was not finite
    ],
    "parity": [
        *_KEYS,
        ("quantity", "string"),  # bench.protocol.QUANTITIES
        ("tensor", "string"),
        # what it is of each quantity: the report's "How to read the numbers"; null: not finite
        ("error", "double"),
        ("bound", "double"),
        ("passed", "bool"),
        ("variant", "string"),
        # parity: an adapter without dropout, before the measured windows | proof: the adapter that was measured; null in older runs
        ("phase", "string"),
    ],
    "telemetry": [
        *_KEYS,
        ("device", "string"),  # a GPU's UUID (of the whole GPU for a MIG instance), or cpu: the cell's own processes
        ("seconds", "double"),  # on the samples' clock
        ("power_watts", "double"),
        # A counter. GPU: NVML's, since the driver was loaded; cpu: of the packages, for cells on the CPU.
        ("energy_joules", "double"),
        ("temperature_celsius", "double"),
        ("memory_temperature_celsius", "double"),
        ("sm_megahertz", "double"),
        ("memory_megahertz", "double"),
        ("throttle_reasons", "int64"),  # NVML's bits of nvmlClocksEventReasons
        ("utilisation_percent", "double"),
        ("memory_bytes", "int64"),  # GPU: in use by all; cpu: of the cell
        ("foreign_process_count", "int64"),  # that computed on the GPU beside the cell; asked twice a second, else null
        ("foreign_memory_bytes", "int64"),  # of these
        ("pcie_sent_bytes", "int64"),  # a counter
        ("pcie_received_bytes", "int64"),
        ("cpu_seconds", "double"),  # a counter
        ("cpu_megahertz", "double"),  # the mean of the cell's CPUs; null where the machine does not report it
    ],
}


class StoreError(UserError):
    """A stored file that cannot be used; the message names it and says what to do.

    It is one line without escapes: the name of a folder may hold line breaks.
    """

    def __init__(self, message: str) -> None:
        super().__init__(in_a_line(message, _LONGEST_ERROR))


def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of one table, with the schema's version in its metadata."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "list<string>": pa.list_(pa.string()),
    }
    columns = [pa.field(name, types[kind]) for name, kind in TABLES[table]]
    return pa.schema(columns, metadata={"schema_version": str(SCHEMA_VERSION)})


def run_folder(name: str, out: Path) -> Path:
    """The folder of a run that is given by its id below `out`, or by its folder."""
    return out / name if (out / name).is_dir() else Path(name)


def file_name(cell_id: str, repeat: int) -> str:
    """The stem of every file of one repeat of a cell."""
    return f"{cell_id}.r{repeat}"


# A run.json holds the plan: some hundred bytes a cell.
MOST_MANIFEST_BYTES = 64 << 20
# The most rows and bytes of one repeat's table, as it lies on disk and in memory. runner.run.record keeps at most 200 000 events of 64 MiB
# of a cell; the runner adds its keys, and some rows of its own.
_MOST_ROWS, _MOST_TABLE_BYTES = 201_000, 96 << 20
# Longer tables are compressed.
_MANY_ROWS = 1000
# Telemetry of days on sixteen GPUs.
_MOST_TELEMETRY_ROWS, _MOST_TELEMETRY_BYTES = 1_000_000, 192 << 20


def read_bytes(path: Path, most: int = MOST_MANIFEST_BYTES) -> bytes:
    """What a file holds. Raises OSError where it has more than `most` bytes, or is no file: a pipe may never be written to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
        # Most files are small: one call reads one.
        data = os.read(descriptor, min(most, status.st_size))
        if len(data) == status.st_size:
            return data
        with open(descriptor, "rb", closefd=False) as file:
            return data + file.read(most - len(data))
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file aside, sync it, and rename it into place: a reader sees all of it or none."""
    # /dev/stdout must stay what it is.
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class RunStore:
    """One run's folder. Rows are dicts with the columns of TABLES; a column that is left out is null."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_id = folder.name

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_bytes(self.folder / "run.json", json.dumps(manifest, indent=2, sort_keys=True).encode())

    def manifest(self) -> dict[str, Any]:
        path = self.folder / "run.json"
        try:
            manifest = json.loads(read_bytes(path))
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"{self.folder} is not a run: it has no run.json; name a folder that `runner matrix` made"
            ) from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({error.strerror}); restore it, or leave this run out") from None
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{path} is not JSON ({error}); restore it, or leave this run out") from None
        if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION:
            raise StoreError(f"{path}: schema_version is not {SCHEMA_VERSION}; read it with the release that wrote it")
        if wrong := validate.of_manifest(manifest):
            raise StoreError(f"{path}: {wrong}; restore it, or leave this run out")
        return manifest

    def write_repeat(self, cell_id: str, repeat: int, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Store one ended repeat. `tables` must hold its one `cells` row; it is renamed into place last."""
        if len(tables["cells"]) != 1:
            raise ValueError("a repeat has exactly one row in cells")
        for table in [name for name in TABLES if name != "cells"] + ["cells"]:
            rows = [dict(row, run_id=self.run_id, cell_id=cell_id, repeat=repeat) for row in tables.get(table, [])]
            self._write_table(table, file_name(cell_id, repeat), rows)

    def events_path(self, cell_id: str, repeat: int) -> Path:
        """Where the lines of a repeat's cell are kept as they came."""
        return self.folder / "events" / f"{file_name(cell_id, repeat)}.jsonl"

    def write_skipped(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store the planned combinations that were left out: cells rows with status skipped and a reason."""
        rows = [dict(row, run_id=self.run_id, repeat=0, status="skipped") for row in rows]
        self._write_table("cells", "skipped", rows)

    def _write_table(self, table: str, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = arrow_schema(table)
        unknown = {column for row in rows for column in row} - set(schema.names)
        if unknown:
            raise ValueError(f"{table} has no column {sorted(unknown)}")
        if table == "cells":
            rows = [dict(row, schema_version=SCHEMA_VERSION) for row in rows]
        sink = pa.BufferOutputStream()
        # A compressed column takes three times as long to read, and of a few rows it is no smaller.
        many = len(rows) > _MANY_ROWS
        pq.write_table(
            pa.Table.from_pylist(list(rows), schema=schema),
            sink,
            compression="zstd" if many else "none",
            use_dictionary=len(rows) > 1,
            write_statistics=many,
        )
        write_bytes(self.folder / table / f"{name}.parquet", sink.getvalue().to_pybytes())

    def finished(self) -> dict[tuple[str, int], str]:
        """(cell id, repeat) -> status, of every repeat that has ended. Raises StoreError."""
        import pyarrow as pa

        ended: dict[tuple[str, int], str] = {}
        for path in sorted((self.folder / "cells").glob("*.r*.parquet")):
            try:
                rows = read_columns(path, ["cell_id", "repeat", "status"]).to_pylist()
            except (pa.ArrowException, OSError) as error:
                why = f"it cannot be read as a cells table ({error})"
                raise StoreError(
                    f"{path}: {why}; restore it, or remove it and --resume measures that cell again"
                ) from None
            for row in rows:
                ended[(row["cell_id"], row["repeat"])] = row["status"]
        return ended

    def remove_parts(self) -> None:
        """Remove the aside files that a killed runner left."""
        for path in self.folder.rglob(".*.part"):
            path.unlink(missing_ok=True)


def _run_id(folder: Path) -> str:
    """The run that a folder holds. A person may have given the folder another name."""
    try:
        return str(json.loads(read_bytes(folder / "run.json"))["run_id"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return folder.name


def read(folders: Iterable[Path], table: str) -> pa.Table:
    """One table of some runs with the columns of TABLES; no rows where there are none.

    Raises StoreError where a file is no such table, holds what no run writes, or speaks for another run.
    """
    import pyarrow as pa

    schema = arrow_schema(table)
    whole = [pa.Table.from_batches([], schema=schema)]
    for folder in folders:
        empty: dict[bytes, pa.Table] = {}
        parts = {path: _read(path, table, schema, empty) for path in sorted((folder / table).glob("*.parquet"))}
        whole.append(pa.concat_tables([whole[0], *parts.values()]))
        # A run may have thousands of files: they are searched one by one only where there is a fault.
        run_id = _run_id(folder) if parts else ""
        if _others(whole[-1], run_id) or validate.of_table(whole[-1], table, TABLES[table]):
            _refuse(parts, table, run_id)
    return pa.concat_tables(whole)


def _others(rows: pa.Table, run_id: str) -> set[str]:
    """The other runs that rows speak for."""
    return set(rows["run_id"].unique().to_pylist()) - {run_id, None}


def _refuse(parts: Mapping[Path, pa.Table], table: str, run_id: str) -> None:
    """Raise StoreError for the first file of a run that holds what none of its own holds."""
    for path, part in parts.items():
        # A file from elsewhere would add to what another run measured.
        for other in _others(part, run_id):
            raise StoreError(f"{path} speaks for the run {other!r} and lies in {run_id!r}; remove or restore it")
        if fault := validate.of_table(part, table, TABLES[table]):
            raise StoreError(f"{path}: {fault}; remove or restore it")


def read_columns(path: Path, names: Collection[str], optional: bool = False) -> pa.Table:
    """These columns of one file; with `optional`, those of them that it has. Raises pyarrow.ArrowException or OSError."""
    return _parsed(path, read_bytes(path, _limits(path)[1]), names, optional)


def _parsed(path: Path, data: bytes, names: Collection[str], optional: bool) -> pa.Table:
    """The same of a file that holds `data`.

    `pyarrow.parquet.read_table` would do the same, but loads pyarrow's data sets and pandas for it: a third of a second.
    """
    import pyarrow as pa

    most_rows, most_bytes = _limits(path)
    try:
        return _columns(data, names, optional, most_rows, most_bytes)
    except pa.ArrowException:
        raise
    # Python's own, where a name in the file is no UTF-8 or a number in it is too large.
    except (ValueError, OverflowError, MemoryError) as error:
        raise pa.ArrowInvalid(str(error)) from None


def _columns(data: bytes, names: Collection[str], optional: bool, most_rows: int, most_bytes: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pages.check_footer(data)
    with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
        if file.metadata.num_rows > most_rows:
            raise pa.ArrowInvalid(f"it has more than {most_rows} row{'s' if most_rows > 1 else ''}")
        there = [name for name in file.schema_arrow.names if name in names]
        if len(there) != len(set(there)) or (len(there) != len(names) and not optional):
            raise pa.ArrowInvalid(f"it must have each of the columns {', '.join(names)} once")
        found = pages.columns(data, file, there)
        # No value is longer than all of its column: where each may be so long, the file need not be opened twice.
        if sum(column.values * max(8, column.unpacked_bytes) for column in found) <= most_bytes:
            stored = file.read(columns=there, use_threads=False)
            stored.validate(full=True)
            return stored
        _check_size(sum(map(_most_bytes, found)), most_bytes)
    # A value that all rows repeat is stored once: as a dictionary it is also read once.
    with pq.ParquetFile(pa.BufferReader(data), read_dictionary=sorted({c.name for c in found if _is_text(c)})) as file:
        stored = file.read(columns=there, use_threads=False)
    # pyarrow reads texts as they lie: one that is no UTF-8 would end whoever asks for it later.
    stored.validate(full=True)
    return _decoded(stored, most_bytes)


def _limits(path: Path) -> tuple[int, int]:
    """The most rows and bytes that a run writes into a file. A repeat has one row in cells; the skipped ones lie in a file of their own."""
    if path.parent.name == "telemetry":
        return _MOST_TELEMETRY_ROWS, _MOST_TELEMETRY_BYTES
    alone = path.parent.name == "cells" and path.stem != "skipped"
    return 1 if alone else _MOST_ROWS, _MOST_TABLE_BYTES


def _check_size(size: int, most: int) -> None:
    import pyarrow as pa

    if size > most:
        raise pa.ArrowInvalid(f"its columns have more than {most} bytes")


def _is_text(column: pages.Column) -> bool:
    return not column.nested and column.physical_type == "BYTE_ARRAY"


def _most_bytes(column: pages.Column) -> int:
    """The most that a column takes in memory, of plain text with each value stored once."""
    if _is_text(column):
        return column.unpacked_bytes + 8 * column.values
    if not column.nested and column.physical_type != "FIXED_LEN_BYTE_ARRAY":
        return max(column.unpacked_bytes, 8 * column.values)
    # Of lists nothing else is known before they are read: no value is longer than all of them.
    return column.values * max(8, column.unpacked_bytes)


def _decoded(stored: pa.Table, most: int) -> pa.Table:
    """A table with its texts in full. Raises ArrowInvalid where it would then have more than `most` bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    size = 0
    for column in stored.columns:
        if pa.types.is_dictionary(column.type):
            for chunk in column.chunks:
                lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
                size += 4 * len(chunk) + (pc.sum(lengths).as_py() or 0)
        else:
            size += column.nbytes
    _check_size(size, most)
    # In place: a table that is made of no columns would have no rows.
    for at, field in enumerate(stored.schema):
        if pa.types.is_dictionary(field.type):
            stored = stored.set_column(at, field.name, stored.column(at).cast(field.type.value_type))
    return stored


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def _read(path: Path, table: str, schema: pa.Schema, empty: dict[bytes, pa.Table]) -> pa.Table:
    """One file with the columns of a table: null where the release that wrote it had no such column. Raises StoreError.

    `empty` are the files without a row that were read before, by what they hold: of most tables a run has hundreds that are the same.
    """
    import pyarrow as pa

    try:
        data = read_bytes(path, _limits(path)[1])
        if data in empty:
            return empty[data]
        stored = _parsed(path, data, schema.names, optional=True)
        if not len(stored) and stored.schema.equals(schema):
            empty[data] = stored
        if stored.schema.equals(schema):
            return stored
        there = set(stored.column_names)
        columns = [
            _as_type(stored[field.name], field.type) if field.name in there else pa.nulls(len(stored), field.type)
            for field in schema
        ]
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} cannot be read as a {table} table ({error}); remove or restore it") from None
    return pa.Table.from_arrays(columns, schema=schema)
