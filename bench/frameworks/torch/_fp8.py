"""Products of matrices at fp8 in PyTorch: torch._scaled_mm, which torchao's Float8Linear calls as well.

Idiomatic here: factors in e4m3 and the result's gradient in e5m2, with a scale for each tensor (1: ours need none); sums in fp32, which is
use_fast_accum left at its default; results in bf16. cuBLAS wants the first factor row by row and the second column by column, so that
each lies in memory both ways where gradients are wanted: a training step makes the second copy when it casts.
"""

import functools

import torch

from bench.errors import Unsupported
from bench.frameworks.torch.framework import is_out_of_memory
from bench.workloads import ops


def runs(direction, buffers, device):
    """A callable without arguments for each of `buffers` (a and b). Raises Unsupported where this PyTorch or the device has none."""
    if not hasattr(torch, "_scaled_mm"):
        raise Unsupported("PyTorch %s has no torch._scaled_mm" % torch.__version__)
    one = torch.ones((), device=device)
    product = functools.partial(torch._scaled_mm, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    make = gradients if direction == ops.GRADIENT else forward
    found = [
        make(product, *[torch.from_numpy(p[name]).to(device, torch.float8_e4m3fn) for name in "ab"]) for p in buffers
    ]
    try:
        found[0]()
    except (RuntimeError, TypeError) as error:  # the latter before PyTorch 2.5, where the arguments are others
        if is_out_of_memory(error):
            raise
        raise Unsupported("torch._scaled_mm of PyTorch %s: %s" % (torch.__version__, str(error).splitlines()[0][:200]))
    return found


def forward(product, a, b):
    return functools.partial(product, a, by_columns(b))


def gradients(product, a, b):
    d = torch.ones(len(a), b.shape[1], device=a.device).to(torch.float8_e5m2)
    b_by_columns, d_by_columns, a_turned = by_columns(b), by_columns(d), a.t().contiguous()

    def run():
        product(a, b_by_columns)
        return product(d, b.t()), product(a_turned, d_by_columns)

    return run


def by_columns(matrix):
    return matrix.t().contiguous().t()
