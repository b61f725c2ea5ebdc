"""The fastest that PyTorch can be: a matrix product, a copy in memory, its smallest operation."""

import torch

from bench.ceilings import COPY_BYTES, SIDE


def calls(device):
    """Three functions without arguments, on device "cpu" or "cuda"; their results are not used."""
    where = torch.device(device)
    a = torch.rand(SIDE, SIDE, device=where)
    source = torch.ones(COPY_BYTES // 4, device=where)
    target, small = torch.empty_like(source), torch.ones(8, device=where)
    return lambda: torch.mm(a, a), lambda: target.copy_(source), lambda: small + small
