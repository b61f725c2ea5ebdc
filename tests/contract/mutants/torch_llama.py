"""Mistakes in LLaMA's block and in the mixture of experts in PyTorch."""

import torch
import torch.nn.functional as F

from bench.frameworks.torch import _llama, llama_bytes, moe_bytes
from tests.contract.mutants.registry import Planted

# A cell takes half a minute: they run with DLBENCH_FAULTS=all only. Most mistakes are texts, in edits.py.
slow, slow_moe = Planted("torch", "llama-bytes", slow=True), Planted("torch", "moe-bytes", slow=True)
Training = llama_bytes.Training
Mixture = moe_bytes.Training
rms_norm = F.rms_norm


def counted(first):
    """rotation() of positions that are counted from `first`."""

    def table(length, size):
        frequencies = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(first, first + length), frequencies).repeat(1, 2)
        return angles.cos(), angles.sin()

    return table


def written_out(q, k, v, is_causal, enable_gqa):
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(3) @ v


# -- rewrites ----------------------------------------------------------------------------------------------------------


@slow.rewrite
class AttentionWrittenOut(Training):
    """Attention as two products and a softmax, with repeated heads of keys and values."""

    PLANTED = ((F, "scaled_dot_product_attention", written_out),)


@slow.rewrite
class NormWrittenOut(Training):
    """The normalisation as a mean of squares and a root."""

    PLANTED = ((F, "rms_norm", lambda x, shape, weight, eps: x * (x.square().mean(-1, True) + eps).rsqrt() * weight),)


@slow.rewrite
class RotatedFromOne(Training):
    """Positions are counted from 1: the rotation shows their distances only."""

    PLANTED = ((_llama, "rotation", counted(1)),)


@slow.rewrite
class Compiled(Training):
    """The network under torch.compile."""

    def __init__(self, setup):
        super().__init__(setup)
        self.compiled = torch.compile(self.network)


# -- the block ---------------------------------------------------------------------------------------------------------


@slow.mistake("network")
class OnePlusScale(Training):
    """Normalisations multiply by 1 and the scale, as Gemma's do."""

    PLANTED = ((F, "rms_norm", lambda x, shape, weight, eps: rms_norm(x, shape, 1 + weight, eps)),)


# -- the mixture -------------------------------------------------------------------------------------------------------


def on_all(self, x):
    """Experts.forward whose experts compute all positions."""
    flat = x.flatten(0, 1)
    numbers = self.router(flat)
    top, places = numbers.topk(self.chosen, -1)
    gate = torch.zeros_like(numbers).scatter(1, places, top.softmax(-1))
    shares = F.one_hot(places, len(self.experts)).float().mean((0, 1))
    self.spread = len(shares) * (shares * numbers.softmax(-1).mean(0)).sum()
    return sum(gate[:, e, None] * expert(flat) for e, expert in enumerate(self.experts)).view_as(x)


@slow_moe.rewrite
class ExpertsOnAllBytes(Mixture):
    """Each expert computes all bytes, and those that did not choose it count nothing."""

    PLANTED = ((_llama.Experts, "forward", on_all),)
