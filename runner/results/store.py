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

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import rules
from runner.errors import UserError
from runner.results import validate

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SCHEMA_VERSION = 1

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
        # The protocol's kinds, and: protocol, parity, time-limit, hang, crash, wrong-device, engine, gpu-lost, xid.
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
        ("steps", "int64"),
        ("host_peak_bytes", "int64"),
        ("device_peak_bytes", "int64"),
        # over the steady windows, of all its GPUs together, as telemetry saw them from the host; on a CPU, of its packages
        ("energy_joules", "double"),
        ("energy_source", "string"),  # counter: the device's own (NVML's, RAPL's); power: the integral of its samples
        ("joules_per_item", "double"),
        ("mean_power_watts", "double"),
        ("max_temperature_celsius", "double"),
        ("throttled", "bool"),  # a GPU slowed down for heat, or on its power supply's order
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
        ("quantity", "string"),  # logits | loss | gradient | parameter | decay | features | operation
        ("tensor", "string"),
        ("error", "double"),  # relative, 2-norm; null: not finite
        ("bound", "double"),
        ("passed", "bool"),
        ("variant", "string"),
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
        ("pcie_sent_bytes", "int64"),  # a counter
        ("pcie_received_bytes", "int64"),
        ("cpu_seconds", "double"),  # a counter
        ("cpu_megahertz", "double"),  # the mean of the cell's CPUs; null where the machine does not report it
    ],
}


class StoreError(UserError):
    """A stored file that cannot be used; the message names it and says what to do."""


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
            manifest = json.loads(path.read_bytes())
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
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink, compression="zstd")
        write_bytes(self.folder / table / f"{name}.parquet", sink.getvalue().to_pybytes())

    def finished(self) -> dict[tuple[str, int], str]:
        """(cell id, repeat) -> status, of every repeat that has ended. Raises StoreError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        ended: dict[tuple[str, int], str] = {}
        for path in sorted((self.folder / "cells").glob("*.r*.parquet")):
            try:
                rows = pq.read_table(path, columns=["cell_id", "repeat", "status"]).to_pylist()
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


def read(folders: Iterable[Path], table: str) -> pd.DataFrame:
    """One table of some runs as a data frame with the columns of TABLES; no rows where there are none.

    Raises StoreError where a file is no such table, or holds what no run writes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(table)
    parts: dict[Path, pa.Table] = {}
    for folder in folders:
        for path in sorted((folder / table).glob("*.parquet")):
            try:
                parts[path] = pq.read_table(path, schema=schema)
            except (pa.ArrowException, OSError) as error:
                raise StoreError(f"{path} cannot be read as a {table} table ({error}); remove or restore it") from None
    whole = pa.concat_tables([schema.empty_table(), *parts.values()])
    # A run may have thousands of files: they are searched one by one only where there is a fault.
    if validate.of_table(whole, table, TABLES[table]):
        for path, part in parts.items():
            if fault := validate.of_table(part, table, TABLES[table]):
                raise StoreError(f"{path}: {fault}; remove or restore it")
    frame: pd.DataFrame = whole.to_pandas()
    return frame
