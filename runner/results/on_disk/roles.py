"""The role of each recorded fact of a cell. Every answer that compares or pools runs takes its list of facts from here.

identity: two cells are one measurement only where it is equal. choice: somebody chose it, such as a version; it explains a difference
and excuses it. state: of the machine or the installation; it explains a difference, and verify judges it. cause: it was measured, and
explains how long steps took, such as a clock. result: it was measured. provenance: where and when; it explains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

# pydantic takes this one only, before Python 3.12.
from typing_extensions import TypedDict

from bench import rules
from runner.text import number

Role = Literal["identity", "choice", "state", "cause", "result", "provenance"]


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
    **dict.fromkeys(("cell_id", *NamedCell.__annotations__, "device_kind", "device_uuid"), "identity"),
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
         "kernel_share", "energy_joules", "energy_source", "joules_per_item", "device_proof", "version_proof",
         *map(rules.seconds_column, rules.PHASES)),
        "result",
    ),
    **dict.fromkeys(
        ("throttled", "throttled_by", "max_temperature_celsius", "mean_power_watts", "other_cpus", "foreign_processes"), "cause"
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
    "cpu_governor": "state",
    "cpu_energy_preference": "state",
    "cpu_turbo": "state",
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

# Of the table `telemetry`, every column that no other table has. How busy a device was follows from the steps, and so do its bytes.
TELEMETRY_ROLES: Mapping[str, Role] = {
    "device": "identity",
    "seconds": "provenance",
    **dict.fromkeys(
        ("throttle_reasons", "sm_megahertz", "memory_megahertz", "cpu_megahertz", "temperature_celsius",
         "memory_temperature_celsius", "power_watts", "foreign_process_count"),
        "cause",
    ),
    **dict.fromkeys(
        ("energy_joules", "utilisation_percent", "memory_bytes", "foreign_memory_bytes", "pcie_sent_bytes", "pcie_received_bytes",
         "cpu_seconds", "machine_cpu_seconds"),
        "result",
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
    "cpu_governor": "CPU governor",
    "cpu_energy_preference": "CPU energy preference",
    "cpu_turbo": "CPU turbo",
    "memory_bytes": "memory",
    "ecc": "ECC",
    "mig": "MIG",
    "vbios": "VBIOS",
    "compute_mode": "compute mode",
    "power_limit_watts": "power limit in watts",
    "default_power_limit_watts": "default power limit in watts",
    "throttled": "clock held back by",
    "throttled_by": "clock held back by",
    "throttle_reasons": "clock held back by",
    "max_temperature_celsius": "highest temperature in °C",
    "mean_power_watts": "mean power in watts",
    "other_cpus": "CPUs busy with other work",
    "foreign_processes": "other programs on the GPU",
    "foreign_process_count": "other programs on the GPU",
    "sm_megahertz": "GPU clock in MHz",
    "memory_megahertz": "GPU memory clock in MHz",
    "cpu_megahertz": "CPU clock in MHz",
    "temperature_celsius": "temperature in °C",
    "memory_temperature_celsius": "memory temperature in °C",
    "power_watts": "power in watts",
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


# The reference implementation is several times slower than any other. Debian's lies in a folder of that name, one that was built from
# source in the usual folders of libraries. Every other one has a name of its own, or a folder of that name.
_REFERENCE_BLAS = re.compile(r"(/blas|/lib|/lib64|/[a-z0-9_]+-linux-gnu[a-z0-9]*)/lib(c?blas)\.so[.0-9]*$")


def is_reference_blas(path: str) -> bool:
    """True if this file is the reference BLAS."""
    return bool(_REFERENCE_BLAS.search(path))
