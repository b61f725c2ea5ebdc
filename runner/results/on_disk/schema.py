"""The columns of the store's tables.

Units stand in the column names: seconds, bytes, items_per_second. A time inside a cell counts from the start of that
cell's process; started_unix puts that start on the host's wall clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import rules

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 2

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
        # The limits of its container, asked for and read back (runner/results/on_disk/isolation.py). Null without one, and in older runs.
        ("isolation_json", "string"),
        # The node, and the attempt on it, in a run over several nodes; else null.
        ("node", "string"),
        ("attempt", "string"),
        # Null where its parcel is as this installation stored it (runner/results/on_disk/parcel_origin.py).
        ("origin", "string"),
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
        # Over the steady windows, how many CPUs were busy with other work, or taken by the host of a virtual machine: beside a GPU's cell
        # they may be other cells'. Null in older runs.
        ("other_cpus", "double"),
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
        ("direction", "string"),  # forward | gradient | step | copy | reduce | collective
        ("size", "string"),
        ("mop", "double"),  # million floating-point operations in one run
        ("bytes", "int64"),  # the least that one run reads and writes
        ("buffers", "int32"),  # so many sets of inputs took turns
        ("kernel", "string"),  # that the framework took, where it has several and tells; null otherwise
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
        ("machine_cpu_seconds", "double"),  # a counter: of all that runs on the machine, and what its host took
        ("cpu_megahertz", "double"),  # the mean of the cell's CPUs; null where the machine does not report it
    ],
}


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


def no_rows(table: str) -> pa.Table:
    """The table without a row. `Schema.empty_table` would load pandas, which takes a quarter of a second."""
    import pyarrow as pa

    return pa.Table.from_batches([], schema=arrow_schema(table))
