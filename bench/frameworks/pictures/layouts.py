"""How pictures lie in memory, by framework, GPU and precision: one table, each row with its evidence.

Channels first is N, C, H, W; channels last is N, H, W, C. Both compute the same, and which is faster depends on the kernels of cuDNN and
oneDNN. On a GPU the kit measures both (modes channels-first and channels-last), so that a row can become a measured one.
"""

import collections

from bench import rules

FIRST, LAST = rules.LAYOUTS

# framework: the library that computes; Keras takes its backend's rows.
# capability: the least compute capability of the GPU; (): any device, so a CPU.
# precisions: of bench.contract.Setup; (): every one.
# evidence: "measured" (on what, when, where it stands), "compiled" (for a GPU that was absent) or "published" (whose document).
Row = collections.namedtuple("Row", "framework capability precisions layout evidence")

_H200 = "measured: NVIDIA H200, 2026-11-26 (docs/first-gpu.md)"
_GUIDE = "published: NVIDIA, Convolutional Layers User's Guide, on tensor layouts in memory"
_XLA = "compiled: XLA takes it for %s (docs/gpu-compiled.md)"

# The first row that fits counts.
TABLE = (
    Row("torch", (9, 0), ("fp32",), FIRST, _H200),
    Row("torch", (9, 0), ("amp-bf16",), LAST, _H200 + ": as fast as the other; " + _GUIDE),
    Row("torch", (8, 0), ("tf32", "amp-bf16"), LAST, _GUIDE),
    Row("torch", (7, 0), ("amp-fp16",), LAST, _GUIDE),
    Row("torch", (0, 0), (), FIRST, _XLA % "V100 and A100 at fp32"),
    Row("torch", (), (), LAST, "measured: AMD EPYC, fp32, 2026-11-28 (docs/layouts.md)"),
    Row("tensorflow", (8, 0), ("amp-bf16",), LAST, "published: NVIDIA in TensorFlow's pull request 60044"),
    Row("tensorflow", (7, 0), ("amp-fp16",), LAST, _GUIDE),
    Row("tensorflow", (0, 0), (), FIRST, "published: NVIDIA in TensorFlow's pull request 56744, of training"),
    Row("tensorflow", (), (), LAST, "TensorFlow's convolutions for a CPU have no other"),
)


def row_of(framework, capability, precision):
    """The row of the table. capability: (major, minor) of a GPU, or () for a CPU."""
    fitting = (row for row in TABLE if row.framework == framework and row.capability <= tuple(capability))
    return next(row for row in fitting if not row.precisions or precision in row.precisions)


def layout_of(framework, setup, capability):
    """FIRST or LAST: what the cell's mode names, or else what the table says. capability: as row_of takes it."""
    return setup.mode if setup.mode in rules.LAYOUTS else row_of(framework, capability, setup.precision).layout
