"""The limits of a GPU by its vendor's datasheet.

peaks.csv: TFLOP/s at boost clock without sparsity, tensor cores where there are some, fp16 with the faster of its two accumulators
(GeForce halves the rate with fp32's), fp8 with fp32's; GB/s of the memory. `model` is a regular expression for NVML's name without
"NVIDIA". The A40 and the L40 are from the tables of NVIDIA's datasheets as sellers print them,
with a 64th of fp32 for fp64. A GPU that is not in the file, and a part of a GPU (MIG), have no peak here: nothing is guessed.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass
from pathlib import Path

_PATH = Path(__file__).with_name("peaks.csv")

# Partner boards and cool boards clock above the datasheet's boost: some 8 % on GeForce. A rate beyond this factor is refused.
ABOVE_PEAK = 1.1

# Winograd's F(4x4, 3x3), which cuDNN has, multiplies a quarter as often as the count of a 3x3 convolution says.
FEWER_IN_CONVOLUTION = 4.0


@dataclass(frozen=True)
class Datasheet:
    """One GPU: floating-point operations a second at one precision (None where there is no figure), and bytes a second."""

    flops: float | None
    bytes: float


def bare_model(model: str) -> str:
    """A GPU's name without its maker: drivers since 470 call an A100-SXM4-40GB NVIDIA A100-SXM4-40GB."""
    return model.removeprefix("NVIDIA ")


def datasheet(model: str, precision: str) -> Datasheet | None:
    """NVML's name of a GPU -> its datasheet; None if it is unknown."""
    name = bare_model(model)
    for row in _rows():
        if re.fullmatch(row["model"], name):
            # Mixed precision multiplies in its half type.
            teraflops = row.get(precision.removeprefix("amp-"))
            return Datasheet(float(teraflops) * 1e12 if teraflops else None, float(row["gb_per_second"]) * 1e9)
    return None


@functools.cache
def _rows() -> tuple[dict[str, str], ...]:
    with _PATH.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))
