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
from runner.text import number

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
        ("run_id", "repeat", "node", "attempt", "origin", "bench_sha256", "core_sha256", "device_uuids", "given_uuids", "device_name",
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

# Of run.json's `host`.
HOST_ROLES: Mapping[str, Role] = {
    "cpu_model": "choice",
    "architecture": "state",
    "cpu_count": "state",
    "cpu_quota": "state",
    "machine_cpus": "state",
    "kernel": "state",
    "memory_bytes": "state",
    "name": "provenance",
}

# Of a GPU's entry in run.json's `devices`, which has the fields of a `Gpu`. How many lanes an idle GPU uses is its driver's affair.
# The newest CUDA follows from the driver.
DEVICE_ROLES: Mapping[str, Role] = {
    "model": "identity",
    **dict.fromkeys(("driver", "ecc", "mig"), "choice"),
    **dict.fromkeys(
        ("memory_bytes", "power_limit_watts", "default_power_limit_watts", "persistence", "compute_mode", "vbios",
         "locked_sm_megahertz", "application_sm_megahertz", "application_memory_megahertz", "max_sm_megahertz",
         "max_memory_megahertz", "pcie_generation", "pcie_width"),
        "state",
    ),
    **dict.fromkeys(("pcie_width_now", "free_bytes", "processes"), "result"),
    **dict.fromkeys(
        ("index", "uuid", "board", "instance", "pci", "numa_node", "cpus", "near", "compute_capability", "cuda_driver"),
        "provenance",
    ),
}  # fmt: skip

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
    "memory_bytes": "memory",
    "ecc": "ECC",
    "mig": "MIG",
    "vbios": "VBIOS",
    "compute_mode": "compute mode",
    "power_limit_watts": "power limit in watts",
    "default_power_limit_watts": "default power limit in watts",
}


def with_role(*roles: Role, of: Mapping[str, Role] = ROLES) -> tuple[str, ...]:
    """The names of the facts with one of these roles, in the order of the table."""
    return tuple(name for name, role in of.items() if role in roles)


class MemorySize(int):
    """Bytes of memory. A new kernel leaves some MB more or less, and that is no other size."""

    def __str__(self) -> str:
        return f"{number(self / 2**30, 2)} GiB"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and abs(self - other) <= 0.05 * max(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Equal sizes have one hash: it is that of all.
    def __hash__(self) -> int:
        return 0


def shown(name: str, value: object) -> str | MemorySize:
    """A recorded value as it is compared and printed. Nothing is a value too: no time limit, no flags."""
    if value is None or value == "":
        return "none"
    if name == "memory_bytes" and isinstance(value, int):
        return MemorySize(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
