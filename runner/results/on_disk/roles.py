"""The role of each recorded fact of a cell. Every answer that compares or pools runs takes its list of facts from here.

identity: two cells are one measurement only where it is equal. choice: somebody chose it, such as a version; it explains a difference
and excuses it. state: of the machine or the installation; it explains a difference, and verify judges it. result: it was measured.
provenance: where and when; it explains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

# pydantic takes this one only, before Python 3.12.
from typing_extensions import TypedDict

from bench import rules

Role = Literal["identity", "choice", "state", "result", "provenance"]


class NamedCell(TypedDict):
    """The keys that name a cell in every command."""

    image: str
    framework: str
    mode: str
    workload: str
    precision: str
    preset: str
    device_model: str
    devices: int
    scaling: str
    batch: int


# Of the table `cells`, every column (schema.py).
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(
        ("cell_id", "image", "framework", "workload", "precision", "preset", "mode", "device_kind", "device_model", "devices",
         "scaling", "device_uuid", "batch"),
        "identity",
    ),
    **dict.fromkeys(
        ("framework_version", "cuda_version", "cudnn_version", "driver_version", "data_source", "data_sha256"), "choice"
    ),
    **dict.fromkeys(
        ("seed", "engine", "isolation_json", "image_digest", "lock_sha256", "code_sha256", "python_version",
         "environment_json"),
        "state",
    ),
    # The code that a cell runs has a digest of its own; the compute capability is the model's.
    **dict.fromkeys(
        ("run_id", "repeat", "node", "attempt", "bench_sha256", "core_sha256", "device_uuids", "given_uuids", "device_name",
         "compute_capability", "started_unix", "schema_version", "log_tail", "hint"),
        "provenance",
    ),
    **dict.fromkeys(
        ("status", "error_kind", "reason", "exit_code", "stop", "noise", "short", "parity_passed", "wall_seconds",
         "first_step_seconds", "jit_cache_grew_bytes", "steps", "host_peak_bytes", "device_peak_bytes", "device_used_bytes",
         "kernel_share", "energy_joules", "energy_source", "joules_per_item", "mean_power_watts", "max_temperature_celsius",
         "throttled", "device_proof", "version_proof", "foreign_processes", "throttled_by",
         "other_cpus", *map(rules.seconds_column, rules.PHASES)),
        "result",
    ),
}  # fmt: skip

# Of run.json's `host`. A new kernel leaves some MB more or less, so the memory explains nothing.
HOST_ROLES: Mapping[str, Role] = {
    "cpu_model": "choice",
    "cpu_count": "state",
    "cpu_quota": "state",
    "machine_cpus": "state",
    "kernel": "state",
    "memory_bytes": "provenance",
    "name": "provenance",
}

# The word for a fact in a sentence; without one the fact has its own name.
WORDS: Mapping[str, str] = {
    "framework_version": "framework",
    "python_version": "Python",
    "cuda_version": "CUDA",
    "cudnn_version": "cuDNN",
    "driver_version": "driver",
    "image_digest": "image",
    "lock_sha256": "lock",
    "code_sha256": "code",
    "data_source": "data from",
    "data_sha256": "data",
    "cpu_model": "processor",
    "cpu_count": "CPUs",
    "cpu_quota": "CPU time limit",
    "machine_cpus": "CPUs of the machine",
}


def with_role(*roles: Role, of: Mapping[str, Role] = ROLES) -> tuple[str, ...]:
    """The names of the facts with one of these roles, in the order of the table."""
    return tuple(name for name, role in of.items() if role in roles)
