"""Products whose bits bench.same_bits looks at, in PyTorch."""

import functools

import torch

from bench.ceilings import SIDES
from bench.same_bits import BLOCKS


def bits_of_products(device):
    """(name, if each GPU of a model takes the same kernel, a function that gives the sums); the factors are the same in each process."""
    a = torch.randn(SIDES[device], SIDES[device], generator=torch.Generator().manual_seed(2)).to(device)
    half = a.to(torch.bfloat16)
    return [
        ("bf16 product", True, functools.partial(_sums, half, False)),
        ("tf32 product", True, functools.partial(_sums, a, True)),
        ("fp32 product", True, functools.partial(_sums, a, False)),
    ]


def _sums(factor, rounded):
    torch.backends.cuda.matmul.allow_tf32 = rounded
    bits = torch.mm(factor, factor).view(torch.int16 if factor.element_size() == 2 else torch.int32)
    side = len(bits) // BLOCKS
    return bits.view(BLOCKS, side, BLOCKS, side).sum((1, 3), dtype=torch.int64).cpu().numpy()
