"""Attention, fused and written out, agrees with the float64 reference at each precision, and says which kernel it took."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow

FLASH = "flash attention for cpu"
# framework -> (its image, the end of the operation's name -> the kernel, or a part of the reason why it has none on a CPU)
EXPECTED = {
    "torch": (
        "torch-2.13.0-cpu",
        {"": FLASH, "flash": FLASH, "cudnn": "No viable backend", "efficient": "No viable backend", "written": "math"},
    ),
    "jax": (
        "jax-0.10.2-cpu",
        {"": "XLA", "flash": "Pallas", "cudnn": "cuDNN is not detected", "efficient": "no memory-efficient"}
        | {"written": "XLA"},
    ),
}
# XLA's CPU compiler lacks products of fp16 with sums in fp32, and JAX takes its softmax in fp32.
LACKS = {("jax", "fp16"): "F16_F16_F32", ("jax", "fp64"): "softmax in fp32"}


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize("framework", EXPECTED)
def test_every_backend_computes_the_same_attention(run_in: Callable[..., str], framework: str, precision: str) -> None:
    image, kernels = EXPECTED[framework]
    held = json.loads(run_in(image, "attention_backends.py", framework, precision))
    assert len(held) == 3 * 5 * 2  # shapes of heads, backends, directions
    for name, outcome in held.items():
        backend = name.split()[0].partition("_")[2].partition("_")[2]
        expected = LACKS.get((framework, precision), kernels[""]) if not backend else kernels[backend]
        if isinstance(outcome, str):
            assert expected in outcome, name
        else:
            share, kernel = outcome
            assert kernel == expected, name
            assert share < 1.0, name
