"""Mistakes in LLaMA's block and in the mixture of experts in PyTorch."""

import torch
import torch.nn.functional as F

from bench.frameworks.torch import _llama, llama_bytes, moe_bytes
from tests.contract.mutants.registry import Planted

# A cell takes half a minute: most of them run with DLBENCH_FAULTS=all only.
llama, slow = Planted("torch", "llama-bytes"), Planted("torch", "llama-bytes", slow=True)
moe, slow_moe = Planted("torch", "moe-bytes"), Planted("torch", "moe-bytes", slow=True)
Training = llama_bytes.Training
Mixture = moe_bytes.Training
attend, rms_norm, rotated, rotation = F.scaled_dot_product_attention, F.rms_norm, _llama.rotated, _llama.rotation


def by_pairs(x, cosine, sine):
    a, b, half = x[..., 0::2], x[..., 1::2], x.shape[-1] // 2
    cosine, sine = cosine[:, :half], sine[:, :half]
    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2)


def turned(base, first):
    """rotation() with another base, or positions counted from `first`."""

    def table(length, size):
        frequencies = base ** (-torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(first, first + length), frequencies).repeat(1, 2)
        return angles.cos(), angles.sin()

    return table


def tiled(q, k, v, **options):
    many = q.shape[1] // k.shape[1]
    return attend(q, k.repeat(1, many, 1, 1), v.repeat(1, many, 1, 1), **options)


def with_mask(diagonal):
    def seeing(q, k, v, is_causal, enable_gqa):
        mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(diagonal)
        return attend(q, k, v, attn_mask=mask, enable_gqa=enable_gqa)

    return seeing


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

    PLANTED = ((_llama, "rotation", turned(10000.0, 1)),)


@slow.rewrite
class Compiled(Training):
    """The network under torch.compile."""

    def __init__(self, setup):
        super().__init__(setup)
        self.compiled = torch.compile(self.network)


# -- the block ---------------------------------------------------------------------------------------------------------


@llama.mistake("network")
class EpsilonOf1e6(Training):
    """The normalisations' epsilon is 1e-6, that of many LLaMAs."""

    PLANTED = ((F, "rms_norm", lambda x, shape, weight, eps: rms_norm(x, shape, weight, 1e-6)),)


@slow.mistake("network")
class LayerNormForRms(Training):
    """Normalisations subtract the mean."""

    PLANTED = ((F, "rms_norm", lambda x, shape, weight, eps: F.layer_norm(x, shape, weight, None, eps)),)


@slow.mistake("network")
class OnePlusScale(Training):
    """Normalisations multiply by 1 and the scale, as Gemma's do."""

    PLANTED = ((F, "rms_norm", lambda x, shape, weight, eps: rms_norm(x, shape, 1 + weight, eps)),)


@llama.mistake("network")
class RotatedByPairs(Training):
    """Neighbouring numbers are rotated, and not number i with number i + 32."""

    PLANTED = ((_llama, "rotated", by_pairs),)


@slow.mistake("network")
class BaseOf500000(Training):
    """The rotation's base is 500 000, LLaMA 3's."""

    PLANTED = ((_llama, "rotation", turned(500000.0, 0)),)


@slow.mistake("network")
class KeysNotRotated(Training):
    """Queries are rotated, and keys are not."""

    PLANTED = ((_llama, "rotated", lambda x, *table: rotated(x, *table) if x.shape[1] == 6 else x),)


@llama.mistake("network")
class HeadsTiled(Training):
    """The heads of keys and values serve every second head of queries, and not three neighbours."""

    PLANTED = ((F, "scaled_dot_product_attention", tiled),)


@slow.mistake("network")
class OneFutureByte(Training):
    """Each position sees the one after it, too."""

    PLANTED = ((F, "scaled_dot_product_attention", with_mask(1)),)


@slow.mistake("network")
class GeluForSilu(Training):
    """GELU in the place of SiLU."""

    PLANTED = ((F, "silu", F.gelu),)


# -- the mixture -------------------------------------------------------------------------------------------------------


def choosing(self, numbers):
    """(weights, places) (N, chosen), as they should be."""
    top, places = numbers.topk(self.chosen, -1)
    return top.softmax(-1), places


def spreading(shares, numbers):
    return len(shares) * (shares * numbers.softmax(-1).mean(0)).sum()


def on_all(choose=choosing, spread=spreading, kept=None):
    """Experts.forward whose experts compute all positions. kept(gate (N, experts)): the gate that is used."""

    def forward(self, x):
        flat = x.flatten(0, 1)
        numbers = self.router(flat)
        weights, places = choose(self, numbers)
        gate = torch.zeros_like(numbers).scatter(1, places, weights)
        gate = kept(gate) if kept else gate
        shares = F.one_hot(places, len(self.experts)).float().mean((0, 1))
        self.spread = spread(shares, numbers)
        return sum(gate[:, e, None] * expert(flat) for e, expert in enumerate(self.experts)).view_as(x)

    return ((_llama.Experts, "forward", forward),)


def before(self, numbers):
    top, places = numbers.softmax(-1).topk(self.chosen, -1)
    return top, places


def one(self, numbers):
    """The second expert has no weight, and a gradient of zero."""
    weights, places = choosing(self, numbers)
    return weights * 0 + torch.tensor([1.0, 0.0]), places


def overfull(gate):
    return gate * ((gate > 0).cumsum(0) <= len(gate) * 5 // 8)


def dropped(gate):
    return torch.cat([gate[:7], 0 * gate[7:8], gate[8:]])


@slow_moe.rewrite
class ExpertsOnAllBytes(Mixture):
    """Each expert computes all bytes, and those that did not choose it count nothing."""

    PLANTED = on_all()


@moe.mistake("network")
class RouterWithoutGradient(Mixture):
    """The weights of the experts have no gradient."""

    PLANTED = on_all(lambda self, numbers: choosing(self, numbers.detach()))


@slow_moe.mistake("network")
class SoftmaxBeforeTheChoice(Mixture):
    """The weights are those of the softmax over all experts, and do not sum to 1."""

    PLANTED = on_all(before)


@slow_moe.mistake("network")
class OneExpert(Mixture):
    """The first chosen expert has all the weight."""

    PLANTED = on_all(one)


@slow_moe.mistake("network")
class OneByteDropped(Mixture):
    """No expert computes the eighth byte."""

    PLANTED = on_all(kept=dropped)


@slow_moe.mistake("network")
class OverfullExpertsDropBytes(Mixture):
    """An expert takes five eighths of the positions at most, a capacity factor of 1.25, and drops the others."""

    PLANTED = on_all(kept=overfull)


@slow_moe.mistake("loss")
class NothingSpread(Mixture):
    """The loss has no term that spreads the work."""

    PLANTED = on_all(spread=lambda shares, numbers: 0 * numbers.sum())


@slow_moe.mistake("loss")
class SpreadTwice(Mixture):
    """The term that spreads the work is that of the sum of an expert's choices, 2 for each byte."""

    PLANTED = on_all(spread=lambda shares, numbers: 2 * spreading(shares, numbers))
