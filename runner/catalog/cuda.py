"""NVIDIA's table of CUDA's releases: the drivers that run them, and the GPUs that they serve."""

from __future__ import annotations

from bench import rules

# The least driver of each CUDA family, Linux x86_64. 11, 12 and 13 run on it by minor-version compatibility
# (docs.nvidia.com/deploy/cuda-compatibility). 10 has none, so there it is the release's own (the toolkit's release notes).
LEAST_DRIVER = {
    "10.0": "410.48",
    "10.1": "418.39",
    "10.2": "440.33",
    "11": "450.80.02",
    "12": "525.60.13",
    "13": "580.65.06",
}

# The oldest compute capability that a CUDA family's libraries serve (release notes: 11.0 dropped 3.0, 12.0 dropped 3.x,
# 13.0 dropped Maxwell, Pascal and Volta).
LEAST_CAPABILITY = {"10": "3.0", "11": "3.5", "12": "5.0", "13": "7.5"}

# The first CUDA release that compiles for a capability (release notes of those versions). Older ones leave PTX to the driver.
FIRST_RELEASE = {
    "7.0": "9.0",
    "7.5": "10.0",
    "8.0": "11.0",
    "8.6": "11.1",
    "8.9": "11.8",
    "9.0": "11.8",
    "10.0": "12.8",
    "12.0": "12.8",
}

# The least driver that compiles the PTX of a CUDA release: the release's own, Linux x86_64 (the toolkit's release notes, table 3, an update
# of each release). Minor-version compatibility is of compiled code only: it does not cover PTX. PTX 7.0 came with CUDA 11.0, 7.1 with 11.1,
# 7.8 with 11.8, 8.1 with 12.1, 8.3 with 12.3 and 8.5 with 12.5 (the release history in NVIDIA's PTX ISA).
PTX_DRIVER = {
    "11.0": "450.51.06",
    "11.1": "455.32",
    "11.8": "520.61.05",
    "12.1": "530.30.02",
    "12.3": "545.23.08",
    "12.5": "555.42.06",
}

# The least compute capability of a unit: TF32 came with 8.0 (NVIDIA, Ampere tuning guide), bfloat16 units too.
_UNIT_CAPABILITY = {"tf32": "8.0", "bf16": "8.0", "fp16": "5.3", "fp8": "8.9"}


def precision_reason(precision: str, model: str, capability: str | None) -> str | None:
    """Why a device cannot compute in a precision; None where it can. `capability` is None for a CPU."""
    # Mixed precision takes what its half type takes.
    unit = rules.MIXED.get(precision, precision)
    if capability is None:
        return "a CPU has no TF32 unit" if unit == "tf32" else None
    lowest = _UNIT_CAPABILITY.get(unit)
    if lowest and _numbers(capability) < _numbers(lowest):
        return f"{model} has no {precision}: it takes compute capability {lowest}"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
