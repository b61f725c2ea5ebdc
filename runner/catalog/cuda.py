"""What NVIDIA says of CUDA's releases: the drivers that run them, and the GPUs that they serve."""

from __future__ import annotations

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
