"""LLaMA's network in Keras 3, with one feed-forward network or several experts a block; the same file on every backend.

Idiomatic here: one Dense gives q, k and v, and RMSNormalization is the backend's own. On all backends keras.ops.dot_product_attention takes
as many heads of keys as of queries, so those are repeated. Experts are one weight: each computes every position, and those that did not
choose it count nothing, as Keras has no product of sorted runs. Their term of the loss is an add_loss.
"""

import keras
from keras import layers, ops

from bench.errors import Unsupported

EPSILON = 1e-5  # Keras' default is 1e-6.


def rotation(length, size):
    """(cosine, sine) (length, 1, size / 2) of the positions' angles."""
    frequencies = 10000.0 ** (-ops.arange(0, size, 2, dtype="float32") / size)
    angles = ops.expand_dims(ops.outer(ops.arange(length, dtype="float32"), frequencies), 1)
    return ops.cos(angles), ops.sin(angles)


def rotated(x, cosine, sine):
    """x (N, T, heads, D): number i and number i + D / 2 as a pair."""
    a, b = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    return ops.cast(ops.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=-1), x.dtype)


class Attention(layers.Layer):
    def __init__(self, width, heads, groups, **options):
        super().__init__(**options)
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.qkv = layers.Dense(width + 2 * groups * self.size, use_bias=False)
        self.o = layers.Dense(width, use_bias=False)

    def build(self, shape):
        self.qkv.build(shape)
        self.o.build(shape)

    def call(self, x):
        length, width = x.shape[1:]
        parts = ops.split(self.qkv(x), [width, width + self.groups * self.size], axis=-1)
        q, k, v = (ops.reshape(part, (-1, length, part.shape[-1] // self.size, self.size)) for part in parts)
        table = rotation(length, self.size)
        k, v = (ops.repeat(part, self.heads // self.groups, axis=2) for part in (rotated(k, *table), v))
        y = ops.dot_product_attention(rotated(q, *table), k, v, is_causal=True)
        return self.o(ops.reshape(y, (-1, length, width)))


class FeedForward(layers.Layer):
    def __init__(self, width, hidden, **options):
        super().__init__(**options)
        self.gate_up, self.down = layers.Dense(2 * hidden, use_bias=False), layers.Dense(width, use_bias=False)
        self.hidden = hidden

    def build(self, shape):
        self.gate_up.build(shape)
        self.down.build((*shape[:-1], self.hidden))

    def call(self, x):
        gate, up = ops.split(self.gate_up(x), 2, axis=-1)
        return self.down(ops.silu(gate) * up)


class Experts(layers.Layer):
    def __init__(self, width, hidden, experts, chosen, **options):
        super().__init__(**options)
        self.hidden, self.experts, self.chosen = hidden, experts, chosen
        self.router = layers.Dense(experts, use_bias=False)

    def build(self, shape):
        width = shape[-1]
        self.router.build(shape)
        self.gate_up = self.add_weight(shape=(self.experts, width, 2 * self.hidden))
        self.down = self.add_weight(shape=(self.experts, self.hidden, width))

    def call(self, x):
        numbers = self.router(x)
        top, places = ops.top_k(numbers, self.chosen)
        chosen = ops.one_hot(places, self.experts)
        weights = ops.sum(chosen * ops.expand_dims(ops.softmax(top), -1), axis=2)
        gate, up = ops.split(ops.einsum("ntc,ecf->netf", x, self.gate_up), 2, axis=-1)
        values = ops.einsum("netf,efc->netc", ops.silu(gate) * up, self.down)
        shares = ops.mean(chosen, axis=(0, 1, 2))
        self.add_loss(0.01 * self.experts * ops.sum(shares * ops.mean(ops.softmax(numbers), axis=(0, 1))))
        return ops.einsum("netc,nte->ntc", values, weights)


class Block(layers.Layer):
    def __init__(self, width, heads, groups, hidden, experts, chosen, **options):
        super().__init__(**options)
        self.n1, self.n2 = (layers.RMSNormalization(epsilon=EPSILON) for _ in range(2))
        self.attention = Attention(width, heads, groups)
        self.ffn = Experts(width, hidden, experts, chosen) if experts else FeedForward(width, hidden)

    def build(self, shape):
        for part in (self.n1, self.attention, self.n2, self.ffn):
            part.build(shape)

    def call(self, h):
        h = h + self.attention(self.n1(h))
        return h + self.ffn(self.n2(h))


class Network(keras.Model):
    def __init__(self, vocabulary, length, depth, heads, groups, width, hidden, experts=0, chosen=0):
        super().__init__()
        self.wte, self.nf = layers.Embedding(vocabulary, width), layers.RMSNormalization(epsilon=EPSILON)
        self.blocks = [Block(width, heads, groups, hidden, experts, chosen) for _ in range(depth)]
        self.head, self.experts = layers.Dense(vocabulary, use_bias=False), experts
        self.wte.build((None, length))
        for part in (*self.blocks, self.nf, self.head):
            part.build((None, length, width))
        self.built = True

    # Keras hands `training` to the model; nothing here depends on it.
    def call(self, x, training=None):
        h = self.wte(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.nf(h))

    def places(self):
        """(the weight, the canonical names of its parts, whether it is (in, out))."""
        yield from ((self.wte.embeddings, ["wte"], False), (self.nf.scale, ["nf"], False))
        yield self.head.kernel, ["head"], True
        for number, block in enumerate(self.blocks):
            at, ffn = "h%d." % number, block.ffn
            yield from ((block.n1.scale, [at + "n1"], False), (block.n2.scale, [at + "n2"], False))
            yield block.attention.qkv.kernel, [at + part for part in "qkv"], True
            yield block.attention.o.kernel, [at + "o"], True
            experts = [at + "e%d." % expert for expert in range(self.experts)] or [at]
            if self.experts:
                yield ffn.router.kernel, [at + "router"], True
            gate_up, down = (ffn.gate_up, ffn.down) if self.experts else (ffn.gate_up.kernel, ffn.down.kernel)
            yield gate_up, [e + part for e in experts for part in ("gate", "up")], True
            yield down, [e + "down" for e in experts], True


def network(**feed_forward):
    if not hasattr(layers, "RMSNormalization"):
        raise Unsupported("Keras %s has no RMSNormalization; Keras 3.9 is the first" % keras.__version__)
    return Network(vocabulary=256, length=256, depth=6, heads=6, groups=2, width=384, **feed_forward)
