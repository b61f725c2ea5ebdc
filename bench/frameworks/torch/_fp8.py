"""Matrix products at fp8 in PyTorch: torch._scaled_mm, which torchao's Float8Linear calls too.

Idiomatic here: the factors are e4m3 and the result's gradient is e5m2. Each tensor has a scale; ours is 1. Sums are fp32, since
use_fast_accum keeps its default; results are bf16. cuBLAS takes the first factor row by row and the second column by column, so
gradients need both orders of each factor: a training step makes the second copy when it casts.
"""

import functools

import torch

from bench.errors import Unsupported
from bench.frameworks.torch.framework import is_out_of_memory
from bench.workloads import ops


def runs(direction, buffers, device):
    """For each of `buffers` (a and b) a callable without arguments. Raises Unsupported where PyTorch or the device has no such product."""
    if not hasattr(torch, "_scaled_mm"):
        raise Unsupported("PyTorch %s has no torch._scaled_mm" % torch.__version__)
    scale = torch.ones((), device=device)
    product = functools.partial(torch._scaled_mm, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
    make = gradients if direction == ops.GRADIENT else forward
    factors = [[torch.from_numpy(p[name]).to(device, torch.float8_e4m3fn) for name in "ab"] for p in buffers]
    calls = [make(product, a, b) for a, b in factors]
    try:
        calls[0]()
    # TypeError: before PyTorch 2.5 the function has other arguments.
    except (RuntimeError, TypeError) as error:
        if is_out_of_memory(error):
            raise
        raise Unsupported("torch._scaled_mm of PyTorch %s: %s" % (torch.__version__, str(error).splitlines()[0][:200]))
    return calls


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
