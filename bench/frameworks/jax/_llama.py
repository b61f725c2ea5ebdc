"""LLaMA's network in JAX, with one feed-forward network or several experts a block: Flax NNX modules, one jitted step.

Idiomatic here: one Linear gives q, k and v; jax.nn.dot_product_attention takes the heads of keys and values in groups, and its kernel is
chosen as in _gpt.py. Experts are one array: positions are sorted by their experts, and jax.lax.ragged_dot multiplies each run of them
with its expert's matrix.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from bench.frameworks.jax import _gpt
from bench.frameworks.jax._flax import get_value

EPSILON = 1e-5  # Flax's default is 1e-6.


def rotation(length, size):
    """(cosine, sine) (length, 1, size / 2) of the positions' angles."""
    frequencies = 10000.0 ** (-np.arange(0, size, 2) / size)
    angles = np.outer(np.arange(length), frequencies)[:, None]
    return jnp.float32(np.cos(angles)), jnp.float32(np.sin(angles))


def rotated(x, cosine, sine):
    """x (N, T, heads, D): number i and number i + D / 2 as a pair."""
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cosine - b * sine, a * sine + b * cosine], -1).astype(x.dtype)


class Attention(nnx.Module):
    def __init__(self, width, heads, groups, how):
        self.size = width // heads
        self.cuts = [width, width + groups * self.size]
        self.qkv = nnx.Linear(width, width + 2 * groups * self.size, use_bias=False, **how)
        self.o = nnx.Linear(width, width, use_bias=False, **how)

    def __call__(self, x):
        parts = jnp.split(self.qkv(x), self.cuts, axis=-1)
        q, k, v = (part.reshape(x.shape[:2] + (-1, self.size)) for part in parts)
        q, k = (rotated(part, *rotation(x.shape[1], self.size)) for part in (q, k))
        return self.o(_gpt.attention(q, k, v).reshape(x.shape))


class FeedForward(nnx.Module):
    def __init__(self, width, hidden, how):
        self.gate_up = nnx.Linear(width, 2 * hidden, use_bias=False, **how)
        self.down = nnx.Linear(hidden, width, use_bias=False, **how)

    def __call__(self, x):
        """(what is added, 0: there is nothing to spread)."""
        gate, up = jnp.split(self.gate_up(x), 2, axis=-1)
        return self.down(nnx.silu(gate) * up), 0.0


class Experts(nnx.Module):
    def __init__(self, width, hidden, experts, chosen, how):
        self.experts, self.chosen = experts, chosen
        self.router = nnx.Linear(width, experts, use_bias=False, **how)
        draw = nnx.initializers.glorot_uniform(batch_axis=0)
        self.gate_up = nnx.Param(draw(how["rngs"].params(), (experts, width, 2 * hidden)))
        self.down = nnx.Param(draw(how["rngs"].params(), (experts, hidden, width)))

    def __call__(self, x):
        """(what is added, the block's term of the loss that spreads the work, without its factor)."""
        flat = x.reshape(-1, x.shape[-1])
        numbers = self.router(flat)
        top, places = jax.lax.top_k(numbers, self.chosen)
        order = jnp.argsort(places.ravel())
        counts = jnp.bincount(places.ravel(), length=self.experts)
        gate_up = jax.lax.ragged_dot(flat[order // self.chosen], get_value(self.gate_up), counts)
        gate, up = jnp.split(gate_up, 2, axis=-1)
        sorted_values = jax.lax.ragged_dot(nnx.silu(gate) * up, get_value(self.down), counts)
        values = sorted_values[jnp.argsort(order)].reshape(places.shape + (-1,))
        y = (values * nnx.softmax(top)[..., None]).sum(1)
        spread = self.experts * (counts / places.size * nnx.softmax(numbers).mean(0)).sum()
        return y.reshape(x.shape), spread


class Block(nnx.Module):
    def __init__(self, width, heads, groups, hidden, experts, chosen, how):
        self.n1, self.n2 = (nnx.RMSNorm(width, epsilon=EPSILON, **how) for _ in range(2))
        self.attention = Attention(width, heads, groups, how)
        self.ffn = Experts(width, hidden, experts, chosen, how) if experts else FeedForward(width, hidden, how)

    def __call__(self, h):
        h = h + self.attention(self.n1(h))
        added, spread = self.ffn(self.n2(h))
        return h + added, spread


class Network(nnx.Module):
    def __init__(self, vocabulary, length, layers, heads, groups, width, hidden, dtype, rngs, experts=0, chosen=0):
        how = {"dtype": dtype, "rngs": rngs}
        self.layers, self.wte = layers, nnx.Embed(vocabulary, width, rngs=rngs)
        for block in range(layers):
            setattr(self, "h%d" % block, Block(width, heads, groups, hidden, experts, chosen, how))
        self.nf = nnx.RMSNorm(width, epsilon=EPSILON, **how)
        self.head = nnx.Linear(width, vocabulary, use_bias=False, **how)

    def run(self, x):
        """(logits, the sum of the blocks' terms that spread the work)."""
        h, total = self.wte(x), 0.0
        for block in range(self.layers):
            h, spread = getattr(self, "h%d" % block)(h)
            total += spread
        return self.head(self.nf(h)), total

    def __call__(self, x):
        return self.run(x)[0]


class Trained(_gpt.Trained):
    """A subclass gives SIZES, the first arguments of Network."""

    NETWORK, OPTIMIZER = Network, optax.adam(0.001, b1=0.9, b2=0.99, eps=1e-8)

    def loss(self, parameters, x, y):
        logits, spread = nnx.merge(self.structure, parameters).run(x)
        logits = logits.astype("float32")
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean() + 0.01 * spread, logits

    def places(self):
        yield ("wte", "embedding"), ["wte"]
        experts = ["e%d." % expert for expert in range(self.SIZES.get("experts", 0))]
        end = () if experts else ("kernel",)
        for block in ("h%d" % block for block in range(self.layers)):
            at = block + "."
            yield (block, "n1", "scale"), [at + "n1"]
            yield (block, "attention", "qkv", "kernel"), [at + part for part in "qkv"]
            yield (block, "attention", "o", "kernel"), [at + "o"]
            yield (block, "n2", "scale"), [at + "n2"]
            if experts:
                yield (block, "ffn", "router", "kernel"), [at + "router"]
            yield (block, "ffn", "gate_up") + end, [at + e + part for e in experts or [""] for part in ("gate", "up")]
            yield (block, "ffn", "down") + end, [at + e + "down" for e in experts or [""]]
        yield ("nf", "scale"), ["nf"]
        yield ("head", "kernel"), ["head"]
