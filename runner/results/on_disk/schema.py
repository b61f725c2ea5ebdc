"""The columns of a run's tables: of each its name, its type, its unit and what it holds. Parquet files have the last two as metadata of
their fields, and docs/columns.md is made of them.

A time inside a cell counts from the start of that cell's process; started_unix puts that start on the host's wall clock.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import rules
from runner.errors import UserError, naming
from runner.text import in_a_line

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq


# Files that are read and written whole: a reader sees all of a file or none of it.

# In characters: two paths and what is wrong.
_LONGEST_ERROR = 20_000

# Of the footer of a Parquet file: a text, and the parts of a list. The longest text is the manifest of a reference.
_MOST_TEXT, _MOST_PARTS = 16 << 20, 10_000

# A run.json holds the plan: some hundred bytes a cell.
MOST_MANIFEST_BYTES = 64 << 20


class StoreError(UserError):
    """A stored file that cannot be used; the message names it and says what to do.

    It is one line without escapes: the name of a folder may hold line breaks.
    """

    def __init__(self, message: str) -> None:
        super().__init__(in_a_line(message, _LONGEST_ERROR))


def read_bytes(path: Path, most: int = MOST_MANIFEST_BYTES) -> bytes:
    """The bytes of a file. Raises OSError where it has more than `most` bytes, or is no file: a pipe may never be written to."""
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


def other_kind(head: bytes, *, text: bool = False) -> str | None:
    """A clause on the kind of a file that is not what it was taken for, by its first bytes, and what to do; None if it is not known.

    `text`: it was taken for text, so that it is text says nothing.
    """
    if head.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS: `git lfs pull` gets the file that it stands for"
    if head.startswith(b"PK\x03\x04"):
        return "it is a zip file, or a spreadsheet"
    if head.lstrip()[:1] == b"<":
        return "it is a web page: what was saved is a login or an error, and not the file"
    if head and not text and not set(head) - set(range(32, 127)) - set(b"\t\r\n"):
        return "it is text"
    return None


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file that a user named, as replace_bytes does; a link, a pipe or a device stays what it is."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with naming(path):
            path.write_bytes(data)
    else:
        replace_bytes(path, data)


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a file aside, sync it, and rename it into place: a reader sees all of it or none.

    A link or a pipe of that name is replaced: the folder may come from elsewhere, and nothing is written outside of it.
    """
    with naming(path):
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
        sync_names(path.parent)


def sync_names(folder: Path) -> None:
    """Let the names of the files in a folder outlive a failure of power. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_parquet(data: bytes) -> pq.ParquetFile:
    """A Parquet file of unknown origin, with pyarrow's own limits. Raises pyarrow.ArrowException."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        pa.BufferReader(data),
        pre_buffer=False,
        page_checksum_verification=True,
        thrift_string_size_limit=_MOST_TEXT,
        thrift_container_size_limit=_MOST_PARTS,
    )


SCHEMA_VERSION = 2

# The last word of a column's name -> its unit.
_UNITS = {
    "seconds": "s",
    "bytes": "bytes",
    "watts": "W",
    "joules": "J",
    "celsius": "°C",
    "megahertz": "MHz",
    "percent": "%",
    "unix": "s since 1970",
}


class Header(NamedTuple):
    """A column of a table: its name, its type and what it holds. Every column may be null unless it is a key."""

    name: str
    kind: str  # its Arrow type
    about: str
    own_unit: str = ""

    @property
    def unit(self) -> str:
        """Its unit, which the last word of most names says; empty where it has none."""
        return self.own_unit or _UNITS.get(self.name.rpartition("_")[2], "")


# The keys that every table begins with.
_KEYS = (
    Header("run_id", "string", "the run, as run.json names it"),
    Header("cell_id", "string", "the digest of the cell's content: equal in two runs where the cell is"),
    Header("repeat", "int32", "the number of the repeat, from 1"),
)

# The columns that say what a cell is.
_CELL = (
    Header("image", "string", "the image of the catalog"),
    Header("framework", "string", "the framework"),
    Header("workload", "string", "the workload"),
    Header("precision", "string", "the precision: fp32, tf32, amp-bf16 and so on"),
    Header("preset", "string", "how long the cell measures: quick, full and so on"),
    Header("mode", "string", "how the framework compiles: default is the framework's own habit"),
    Header("device_kind", "string", "cpu or cuda"),
    Header("device_model", "string", "the device, as the host names it"),
    Header("devices", "int32", "how many devices; on a CPU, processes or virtual devices that share it"),
    Header("scaling", "string", "of several devices: weak (batch is that of each) or strong (that of all); else empty or null"),
    Header("device_uuid", "string", "the one GPU that it was for (--each-gpu); empty: any of its model"),
    Header("batch", "int32", "items in a step"),
    Header("seed", "int64", "the seed of the parameters and of the order of the data"),
    Header("engine", "string", "what ran it: docker, podman, apptainer or venv"),
)  # fmt: skip

_PHASES = {
    "import": "until the framework was imported",
    "data": "to read or make the data",
    "build": "to build the network",
    "parity": "to hold the adapter against the float64 reference, before the measured windows",
    "proof": "to hold what was measured against the reference, after the measured windows",
    "compile": "to compile, where the framework does that as a step of its own",
    "warm-up": "of the warm-up",
    "train": "of the steady windows",
    "evaluate": "to evaluate on the held-out part",
    "profile": "to profile, after everything else",
}

# The tables that are made of parcels.
TABLES: dict[str, tuple[Header, ...]] = {
    "cells": (
        *_KEYS,
        *_CELL,
        Header("isolation_json", "string", "the limits of its container, asked for and read back; null without one, and in older runs"),
        Header("node", "string", "the node, in a run over several; else null"),
        Header("attempt", "string", "the attempt on that node; else null"),
        Header("origin", "string", "null where its parcel is as this installation stored it; else what is known of it"),
        Header("image_digest", "string", "of a container: the image's id or registry digest; else of its lock and interpreter"),
        Header("lock_sha256", "string", "of the image's lock"),
        Header("bench_sha256", "string", "of all the bench sources that the cell had beside it"),
        Header("core_sha256", "string", "of the sources that this cell runs: the bench's core and its workload"),
        Header("code_sha256", "string", "of all sources that this cell runs"),
        Header("device_uuids", "list<string>", "its devices, as the cell itself saw them"),
        Header("given_uuids", "list<string>", "its devices, as the engine was asked for them"),
        Header("device_name", "string", "the device, as the framework names it"),
        Header("compute_capability", "string", "of the GPU"),
        Header("framework_version", "string", "as the cell recorded it; version_proof says what holds it"),
        Header("python_version", "string", "as the cell recorded it"),
        Header("cuda_version", "string", "as the cell recorded it"),
        Header("cudnn_version", "string", "as the cell recorded it"),
        Header("driver_version", "string", "NVIDIA's driver"),
        Header("environment_json", "string", "all that the cell recorded of its environment"),
        Header("data_source", "string", "files, or generated: a stand-in"),
        Header("data_sha256", "string", "of the data"),
        Header("status", "string", "how the repeat ended: ok, failed or skipped"),
        Header("error_kind", "string", "of a failed repeat, in one word: protocol, parity, time-limit, hang, crash, wrong-device, engine, "
               "gpu-lost, node-lost, xid and the bench's own kinds"),
        Header("reason", "string", "of a failed or skipped repeat, a sentence"),
        Header("hint", "string", "of a failed repeat: how to fix it, where that is known"),
        Header("log_tail", "string", "the end of its standard error"),
        Header("exit_code", "int32", "of its process"),
        Header("stop", "string", "why sampling stopped: noise, time or count"),
        Header("noise", "double", "half the 95 % interval of the median step time, relative to it", "share"),
        Header("short", "bool", "true if shorter than the specification's run: its total is not the published total"),
        Header("parity_passed", "bool", "true if it computes what the float64 reference does"),
        Header("started_unix", "double", "when its process began, on the host's clock"),
        Header("wall_seconds", "double", "from the engine's start call to the process's end, as the host saw it"),
        *(Header(rules.seconds_column(phase), "double", f"the time {_PHASES[phase]}") for phase in rules.PHASES),
        Header("first_step_seconds", "double", "the time of the first step"),
        Header("jit_cache_grew_bytes", "int64", "by so much the driver's cache of kernels compiled from PTX grew meanwhile, which cells "
               "at once share; null on a CPU"),
        Header("steps", "int64", "all steps that it trained"),
        Header("host_peak_bytes", "int64", "the most memory of the host, by its own word"),
        Header("device_peak_bytes", "int64", "the most memory of the device, by its own word"),
        Header("device_used_bytes", "int64", "the most that was used of a GPU in the steady windows, by the driver, which counts its own "
               "part and other processes"),
        Header("kernel_share", "double", "of a step's time, in which kernels ran on the GPU; null where that is not known", "share"),
        Header("energy_joules", "double", "over the steady windows, of all its GPUs, as the host saw them; on a CPU, of its packages"),
        Header("energy_source", "string", "counter: the device's own (NVML's, RAPL's); power: the integral of its samples"),
        Header("joules_per_item", "double", "energy_joules by the items of the steady windows", "J"),
        Header("mean_power_watts", "double", "over the steady windows"),
        Header("max_temperature_celsius", "double", "over the steady windows"),
        Header("throttled", "bool", "true if a GPU slowed down for heat, or on its power supply's order"),
        Header("device_proof", "string", "of a GPU: proved by NVML, where the host saw a process of the cell on each of its GPUs; else "
               "not proved, and why"),
        Header("version_proof", "string", "proved by the lock, where the image's lock pins the framework; else not proved, and why; null "
               "in older runs"),
        Header("foreign_processes", "list<string>", "who else computed on its GPUs meanwhile; null for a CPU"),
        Header("throttled_by", "list<string>", "every reason that was seen; a power cap alone is a GPU at its work"),
        Header("other_cpus", "double", "over the steady windows, how many CPUs were busy with other work, or taken by the host of a "
               "virtual machine: beside a GPU's cell they may be other cells'; null in older runs", "CPUs"),
        Header("schema_version", "int32", "it grows when a column changes its meaning"),
    ),
    "samples": (
        *_KEYS,
        Header("index", "int32", "the number of the window"),
        Header("stage", "string", "first, warm-up or steady: only steady ones are summarised"),
        Header("begin_seconds", "double", "when it began"),
        Header("seconds", "double", "how long it took"),
        Header("steps", "int32", "the steps in it"),
        Header("items", "int64", "the items in it"),
    ),
    "operations": (
        *_KEYS,
        Header("operation", "string", "the single operation"),
        Header("direction", "string", "forward, gradient, step, copy, reduce or collective"),
        Header("size", "string", "the size, in words"),
        Header("mop", "double", "the operations in one run", "million floating-point operations"),
        Header("bytes", "int64", "the least that one run reads and writes"),
        Header("buffers", "int32", "so many sets of inputs took turns"),
        Header("kernel", "string", "that the framework took, where it has several and tells; else null"),
        Header("index", "int32", "the number of the window"),
        Header("begin_seconds", "double", "when it began"),
        Header("seconds", "double", "how long it took"),
        Header("runs", "int64", "how often the operation ran in it"),
    ),
    "left_out": (
        *_KEYS,
        Header("what", "string", "a point or an operation that the cell did not measure"),
        Header("reason", "string", "why, in a sentence"),
    ),
    "profile": (
        *_KEYS,
        Header("name", "string", "an operation or kernel, as the framework's profiler calls it"),
        Header("on", "string", "cpu or cuda"),
        Header("calls", "int64", "of all profiled steps"),
        Header("seconds", "double", "its own time, without what it calls, of all its calls together"),
        Header("steps", "int32", "so many were profiled, after those that were measured"),
        Header("step_seconds", "double", "of one of them, by the clock, under the profiler"),
    ),
    "metrics": (
        *_KEYS,
        Header("name", "string", "the metric: loss, accuracy and so on"),
        Header("split", "string", "train or test"),
        Header("step", "int64", "the steps before it"),
        Header("train_seconds", "double", "the training time before it"),
        Header("value", "double", "null: it was not finite", "of the metric"),
    ),
    "parity": (
        *_KEYS,
        Header("quantity", "string", "what was compared: logits, loss, gradients and so on"),
        Header("tensor", "string", "of which tensor"),
        Header("error", "double", "its distance from the reference; null: not finite"),
        Header("bound", "double", "the most that is allowed"),
        Header("passed", "bool", "true if the error is within the bound"),
        Header("variant", "string", "the variant that was checked"),
        Header("phase", "string", "parity: an adapter without dropout, before the measured windows; proof: the adapter that was measured; "
               "null in older runs"),
    ),
    "telemetry": (
        *_KEYS,
        Header("device", "string", "a GPU's UUID (of the whole GPU for a MIG instance), or cpu: the cell's own processes"),
        Header("seconds", "double", "when, on the samples' clock"),
        Header("power_watts", "double", "of the device"),
        Header("energy_joules", "double", "a counter. GPU: NVML's, since the driver was loaded; cpu: of the packages"),
        Header("temperature_celsius", "double", "of the device"),
        Header("memory_temperature_celsius", "double", "of the GPU's memory"),
        Header("sm_megahertz", "double", "the GPU's clock"),
        Header("memory_megahertz", "double", "the clock of its memory"),
        Header("throttle_reasons", "int64", "NVML's bits of nvmlClocksEventReasons"),
        Header("utilisation_percent", "double", "of the GPU, by NVML"),
        Header("memory_bytes", "int64", "GPU: in use by all; cpu: of the cell"),
        Header("foreign_process_count", "int64", "that computed on the GPU beside the cell; asked twice a second, else null"),
        Header("foreign_memory_bytes", "int64", "of these"),
        Header("pcie_sent_bytes", "int64", "a counter"),
        Header("pcie_received_bytes", "int64", "a counter"),
        Header("cpu_seconds", "double", "a counter: CPU time of the cell"),
        Header("machine_cpu_seconds", "double", "a counter: CPU time of all that runs on the machine, and what its host took"),
        Header("cpu_megahertz", "double", "the mean of the cell's CPUs; null where the machine does not report it"),
    ),
}  # fmt: skip

# A row for each cell of a run, with the figures that its report prints: made of the tables above by the code of the report.
ANSWERS = "answers"

_ANSWERS = (
    *_KEYS[:2],
    *(column for column in _CELL if column.name != "seed"),
    Header("data_source", "string", "files, or generated: a stand-in"),
    Header("status", "string", "how its worst repeat ended: ok or failed; missing: it is not yet run"),
    Header("ranked", "bool", "true if its figure is in the order of its group"),
    Header("group_id", "string", "the cells that may be compared with one another have one"),
    Header("standing", "string", "first, same, open or slower: beside the first of its group; once: a side was measured once, so nothing "
           "is decided; not ranked; not run"),
    Header("repeats", "int32", "the repeats that its step time is of"),
    Header("repeats_failed", "int32", "the repeats that failed"),
    Header("repeats_planned", "int32", "the repeats that were asked for"),
    Header("windows", "int32", "the steady windows of these repeats"),
    Header("step_seconds", "double", "of a step: all time over all steps, beside the other cells of its run"),
    Header("step_low", "double", "the lower end of its 95 % interval; null where none can be said", "s"),
    Header("step_high", "double", "the upper end", "s"),
    Header("typical_step_seconds", "double", "of a step in the median window, which sees no stalls"),
    Header("items_per_second", "double", "the items of a step by step_seconds", "items a second"),
    Header("items_per_second_low", "double", "the lower end of its 95 % interval", "items a second"),
    Header("items_per_second_high", "double", "the upper end", "items a second"),
    Header("ratio", "double", "step_seconds beside that of the first of its group: 1 for that one"),
    Header("ratio_low", "double", "the lower end of its interval, which counts how many pairs were asked about"),
    Header("ratio_high", "double", "the upper end"),
    Header("verdict", "string", "slower, faster, same or open, beside the first; null of the first, and of a cell without a rank"),
    Header("note", "string", "a sentence that belongs to the verdict"),
    Header("reason", "string", "why it is not ranked; empty where it is"),
    Header("parity_passed", "bool", "true if each repeat computes what the float64 reference does"),
    Header("parity_at_fp32", "string", "at tf32 and mixed precision: the cell that its rank rests on; else empty"),
    Header("device_proof", "string", "of a GPU: what the host saw of the cell on it; empty of a CPU"),
    Header("version_proof", "string", "what holds the version of the framework"),
    Header("first_token_seconds", "double", "of a network that computes token by token: until the first"),
    Header("between_tokens_seconds", "double", "of such a network: from one to the next"),
    Header("between_tokens_99_seconds", "double", "the same, that 99 % do not exceed"),
    Header("floor_seconds", "double", "of such a network: the least time of a step by the memory's datasheet"),
    Header("floor_measured_seconds", "double", "the same by the memory as it was measured"),
)  # fmt: skip


class Frames(NamedTuple):
    """The tables of some runs as pandas has them."""

    answers: pd.DataFrame
    cells: pd.DataFrame
    samples: pd.DataFrame
    telemetry: pd.DataFrame


def columns_of(table: str) -> tuple[Header, ...]:
    """The columns of a table."""
    return _ANSWERS if table == ANSWERS else TABLES[table]


def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of one table, with the schema's version in its metadata, and of each field the unit and what it holds."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "list<string>": pa.list_(pa.string()),
    }
    columns = [
        pa.field(column.name, types[column.kind], metadata={"description": column.about, "unit": column.unit})
        for column in columns_of(table)
    ]
    return pa.schema(columns, metadata={"schema_version": str(SCHEMA_VERSION)})


def no_rows(table: str) -> pa.Table:
    """The table without a row. `Schema.empty_table` would load pandas, which takes a quarter of a second."""
    import pyarrow as pa

    return pa.Table.from_batches([], schema=arrow_schema(table))


def of_rows(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as Arrow has them; what the schema does not have is passed over. `Table.from_pylist` and `array` would load pandas."""
    import pyarrow as pa
    import pyarrow.json

    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    if not lines:
        return pa.Table.from_batches([], schema=schema)
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    whole = pyarrow.json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(lines)))
    return pyarrow.json.read_json(pa.BufferReader(lines), read_options=whole, parse_options=options).cast(schema)
