"""Mistakes in LLaMA's block and in the mixture of experts in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench.frameworks.jax import _gpt, _llama, llama_bytes, moe_bytes
from bench.frameworks.jax._flax import get_value
from tests.contract.mutants.registry import Planted

llama, moe = Planted("jax", "llama-bytes"), Planted("jax", "moe-bytes")
Training = llama_bytes.Training
Mixture = moe_bytes.Training
attention, rotated = _gpt.attention, _llama.rotated


def norm(epsilon=1e-5, centred=False, added=0.0):
    def call(self, x):
        h = x - x.mean(-1, keepdims=True) if centred else x
        return h / jnp.sqrt((h * h).mean(-1, keepdims=True) + epsilon) * (added + get_value(self.scale))

    return ((nnx.RMSNorm, "__call__", call),)


def by_pairs(x, cosine, sine):
    a, b = x[..., 0::2], x[..., 1::2]
    return jnp.stack([a * cosine - b * sine, a * sine + b * cosine], -1).reshape(x.shape)


def turned(base, first):
    def table(length, size):
        angles = np.outer(np.arange(first, first + length), base ** (-np.arange(0, size, 2) / size))[:, None]
        return jnp.float32(np.cos(angles)), jnp.float32(np.sin(angles))

    return ((_llama, "rotation", table),)


def written_out(repeat=lambda part, many: jnp.repeat(part, many, 2), diagonal=0):
    def attend(q, k, v):
        k, v = (repeat(part, q.shape[2] // part.shape[2]) for part in (k, v))
        scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) / q.shape[3] ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[2:], bool), diagonal), scores, -jnp.inf)
        return jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores), v)

    return ((_gpt, "attention", attend),)


# -- rewrites ----------------------------------------------------------------------------------------------------------


@llama.rewrite
class AttentionWrittenOut(Training):
    """Attention as two products and a softmax, with repeated heads of keys and values."""

    PLANTED = written_out()


@llama.rewrite
class NormWrittenOut(Training):
    """The normalisation as a mean of squares and a root."""

    PLANTED = norm()


@llama.rewrite
class RotatedFromOne(Training):
    """Positions are counted from 1: the rotation shows their distances only."""

    PLANTED = turned(10000.0, 1)


# -- the block ---------------------------------------------------------------------------------------------------------


@llama.mistake("network")
class EpsilonOfFlax(Training):
    """The normalisations' epsilon is 1e-6, Flax's default."""

    PLANTED = norm(epsilon=1e-6)


@llama.mistake("network")
class LayerNormForRms(Training):
    """Normalisations subtract the mean."""

    PLANTED = norm(centred=True)


@llama.mistake("network")
class OnePlusScale(Training):
    """Normalisations multiply by 1 and the scale, as Gemma's do."""

    PLANTED = norm(added=1.0)


@llama.mistake("network")
class RotatedByPairs(Training):
    """Neighbouring numbers are rotated, and not number i with number i + 32."""

    PLANTED = ((_llama, "rotated", by_pairs),)


@llama.mistake("network")
class BaseOf500000(Training):
    """The rotation's base is 500 000, LLaMA 3's."""

    PLANTED = turned(500000.0, 0)


@llama.mistake("network")
class KeysNotRotated(Training):
    """Queries are rotated, and keys are not."""

    PLANTED = ((_llama, "rotated", lambda x, *table: rotated(x, *table) if x.shape[2] == 6 else x),)


@llama.mistake("network")
class HeadsTiled(Training):
    """The heads of keys and values serve every second head of queries, and not three neighbours."""

    PLANTED = written_out(lambda part, many: jnp.tile(part, (1, 1, many, 1)))


@llama.mistake("network")
class OneFutureByte(Training):
    """Each position sees the one after it, too."""

    PLANTED = written_out(diagonal=1)


@llama.mistake("network")
class GeluForSilu(Training):
    """GELU in the place of SiLU."""

    PLANTED = ((nnx, "silu", nnx.gelu),)


# -- the mixture -------------------------------------------------------------------------------------------------------


def choosing(numbers):
    """(weights, places) (N, 2), as they should be."""
    top, places = jax.lax.top_k(numbers, 2)
    return nnx.softmax(top), places


def before(numbers):
    return jax.lax.top_k(nnx.softmax(numbers), 2)


def one(numbers):
    weights, places = choosing(numbers)
    return weights * 0 + jnp.array([1.0, 0.0]), places


def on_all(choose=choosing, spread=1.0, kept=lambda gate: gate):
    """Experts.__call__ whose experts compute all positions. kept(gate (N, experts)): the gate that is used."""

    def call(self, x):
        flat = x.reshape(-1, x.shape[-1])
        numbers = self.router(flat)
        weights, places = choose(numbers)
        chosen = jax.nn.one_hot(places, self.experts)
        gate = kept((chosen * weights[..., None]).sum(1))
        gate_up = jnp.einsum("nc,ecf->enf", flat, get_value(self.gate_up))
        first, up = jnp.split(gate_up, 2, axis=-1)
        y = jnp.einsum("enf,efc,ne->nc", nnx.silu(first) * up, get_value(self.down), gate)
        shares = chosen.mean((0, 1))
        return y.reshape(x.shape), spread * self.experts * (shares * nnx.softmax(numbers).mean(0)).sum()

    return ((_llama.Experts, "__call__", call),)


@moe.rewrite
class ExpertsOnAllBytes(Mixture):
    """Each expert computes all bytes, and those that did not choose it count nothing."""

    PLANTED = on_all()


@moe.mistake("network")
class RouterWithoutGradient(Mixture):
    """The weights of the experts have no gradient."""

    PLANTED = on_all(lambda numbers: choosing(jax.lax.stop_gradient(numbers)))


@moe.mistake("network")
class SoftmaxBeforeTheChoice(Mixture):
    """The weights are those of the softmax over all experts, and do not sum to 1."""

    PLANTED = on_all(before)


@moe.mistake("network")
class OneExpert(Mixture):
    """The first chosen expert has all the weight."""

    PLANTED = on_all(one)


@moe.mistake("network")
class OneByteDropped(Mixture):
    """No expert computes the eighth byte."""

    PLANTED = on_all(kept=lambda gate: gate.at[7].set(0.0))


@moe.mistake("network")
class OverfullExpertsDropBytes(Mixture):
    """An expert takes five eighths of the positions at most, a capacity factor of 1.25, and drops the others."""

    PLANTED = on_all(kept=lambda gate: gate * (jnp.cumsum(gate > 0, 0) <= len(gate) * 5 // 8))


@moe.mistake("loss")
class NothingSpread(Mixture):
    """The loss has no term that spreads the work."""

    PLANTED = on_all(spread=0.0)


@moe.mistake("loss")
class SpreadTwice(Mixture):
    """The term that spreads the work is that of the sum of an expert's choices, 2 for each byte."""

    PLANTED = on_all(spread=2.0)
