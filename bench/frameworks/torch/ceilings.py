"""The fastest that PyTorch can be: a matrix product, a copy in memory, its smallest operation."""

import functools

import torch

from bench.ceilings import COPY_BYTES, SIDES


def calls(device):
    """Three functions without arguments, on device "cpu" or "cuda"; their results are not used."""
    where = torch.device(device)
    a = torch.rand(SIDES[device], SIDES[device], device=where)
    source = torch.rand(COPY_BYTES[device] // 4, device=where)
    target, small = torch.empty_like(source), torch.rand(8, device=where)
    return lambda: torch.mm(a, a), lambda: target.copy_(source), lambda: small + small


def loads(device):
    """What keeps a device busy (bench.load): products of square matrices in three precisions, and a copy."""
    where, side = torch.device(device), SIDES[device]
    a = torch.randn(side, side, device=where)
    half = a.to(torch.bfloat16)
    source = torch.rand(COPY_BYTES[device] // 4, device=where)
    target = torch.empty_like(source)
    work = 2.0 * side**3
    return [
        ("bf16 product", "FLOP/s", work, functools.partial(_allow_tf32, False), lambda: torch.mm(half, half)),
        ("tf32 product", "FLOP/s", work, functools.partial(_allow_tf32, True), lambda: torch.mm(a, a)),
        ("fp32 product", "FLOP/s", work, functools.partial(_allow_tf32, False), lambda: torch.mm(a, a)),
        (
            "copy",
            "bytes/s",
            2.0 * COPY_BYTES[device],
            functools.partial(_allow_tf32, False),
            lambda: target.copy_(source),
        ),
    ]


def _allow_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed
