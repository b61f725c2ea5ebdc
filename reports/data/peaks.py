"""What a GPU can do at most by its vendor's datasheet, and which rates are therefore refused.

peaks.csv: TFLOP/s at boost clock without sparsity, tensor cores where there are some, fp16 with the faster of its two accumulators
(GeForce halves the rate with fp32's), fp8 with fp32's; GB/s of the memory. `model` is a regular expression for NVML's name without
"NVIDIA". A GPU that is not in the file, a part of a GPU (MIG) and a CPU have no peak here: nothing is guessed.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from reports.data.model import Rate
from runner.results.cells import Key

_PATH = Path(__file__).with_name("peaks.csv")

# Partner boards and cool boards clock above the datasheet's boost: some 8 % on GeForce. A rate beyond this factor is refused.
_ABOVE = 1.1

# Winograd's F(4x4, 3x3), which cuDNN has, multiplies a quarter as often as the count of a 3x3 convolution says.
_FEWER = {"conv2d": 4.0}

# The memory does not bound what fits a cache. The largest cache of a GPU (RTX PRO 6000) is 128 MB; some servers' CPUs have larger ones.
_BEYOND_CACHE = {"cuda": 512e6, "cpu": 100e6}


def beyond_cache(rate: Rate, device_kind: str) -> bool:
    """Whether the inputs that take turns are so large that each run reads them from memory."""
    return rate.bytes * rate.buffers >= _BEYOND_CACHE.get(device_kind, _BEYOND_CACHE["cuda"])


@dataclass(frozen=True)
class Peak:
    """One GPU's datasheet: floating-point operations a second at one precision (None where it has no figure), and bytes a second."""

    flops: float | None
    bytes: float

    def share_of_work(self, rate: Rate) -> float | None:
        """Of the arithmetic. None where nothing is computed or the datasheet has no figure."""
        return rate.gflops * 1e9 / self.flops if self.flops and rate.mop else None

    def share_of_traffic(self, rate: Rate, direction: str) -> float | None:
        """Of the memory. None where the inputs fit a cache, or the bytes go to another device or the host."""
        if direction in ("copy", "reduce") or not beyond_cache(rate, "cuda"):
            return None
        return rate.gigabytes * 1e9 / self.bytes

    def refuses(self, rate: Rate, operation: str, direction: str) -> bool:
        """Whether the device cannot have done it: then the clock was stopped before the work was done, or work was left out."""
        work, traffic = self.share_of_work(rate), self.share_of_traffic(rate, direction)
        return (work or 0.0) > _ABOVE * _FEWER.get(operation, 1.0) or (traffic or 0.0) > _ABOVE


def peak_of(key: Key) -> Peak | None:
    """The peak of the device of `key` at its precision; None where it is not known."""
    if key.device_kind != "cuda" or key.devices != 1:
        return None
    name = key.device_model.removeprefix("NVIDIA ")
    for row in _rows():
        if re.fullmatch(row["model"], name):
            teraflops = row.get(key.precision.removeprefix("amp-"))  # mixed precision multiplies in its half type
            return Peak(float(teraflops) * 1e12 if teraflops else None, float(row["gb_per_second"]) * 1e9)
    return None


@functools.cache
def _rows() -> tuple[dict[str, str], ...]:
    with _PATH.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))
