"""GPT-2 token by token in TensorFlow: Keras' layers (bench/frameworks/keras/gpt_bytes.py) over a cache of tf.Variables of a fixed size.

Idiomatic here: a step is one tf.function, which is traced once for all positions and writes keys and values into its variables in place.
It sees the whole cache under a mask. Only the last position of a prompt goes through the head. The position is an argument and a result.
TensorFlow has no fused attention: it is two products and a softmax.
"""

import keras
import tensorflow as tf

from bench import contract
from bench.errors import Unsupported
from bench.frameworks.tensorflow._keras import KERAS_2
from bench.frameworks.tensorflow.framework import by_xla, function
from bench.workloads.gpt2_decode import GENERATED, NETWORK, PROMPT

CAPACITY = PROMPT + GENERATED
LAYERS, HEADS, WIDTH = NETWORK.layers, NETWORK.heads, NETWORK.width
# Between (N, positions, heads, size) and (N, heads, positions, size), which the products of a step read as it lies in memory.
HEADS_FIRST = 0, 2, 1, 3
# XLA makes a step faster on a CPU.
FASTER_BY_XLA = True


def write(cache, new, place, by_xla):
    """Put new (N, T, heads, size) into the variable cache (N, heads, capacity, size), from `place` on."""
    new = tf.transpose(new, HEADS_FIRST)
    if by_xla:
        # In place: XLA gives the result the variable's own memory. A slice's assignment it would compile anew for each position.
        cache.assign(keras.ops.slice_update(cache, (0, 0, place, 0), new))
    else:
        cache[:, :, place : place + new.shape[2]].assign(new)


def attend(block, x, cache, place, seen, by_xla):
    """cache: the variables of one block's keys and values; seen (1, 1, 1, capacity): the positions that a step sees, None of a prompt."""
    many, length, width = x.shape
    parts = tf.split(block.qkv(x), 3, axis=-1)
    q, k, v = (tf.reshape(part, (many, length, HEADS, width // HEADS)) for part in parts)
    write(cache[0], k, place, by_xla)
    write(cache[1], v, place, by_xla)
    if seen is None:
        y = keras.ops.dot_product_attention(q, k, v, is_causal=True)
    else:
        y = keras.ops.dot_product_attention(q, *(tf.transpose(kept, HEADS_FIRST) for kept in cache), mask=seen)
    return block.proj(tf.reshape(y, x.shape))


def logits_of(network, x, cache, place, by_xla):
    """The logits (N, vocabulary) after the tokens x (N, T) from `place` on, whose keys and values go into the cache."""
    length = x.shape[1]
    seen = None if length > 1 else (tf.range(CAPACITY) <= place)[None, None, None]
    h = network.wte(x) + network.wpe(place + tf.range(length))
    for block, own in zip(network.blocks, cache):
        h = h + attend(block, block.ln1(h), own, place, seen, by_xla)
        h = h + block.out(tf.nn.gelu(block.fc(block.ln2(h)), approximate=True))
    return tf.matmul(network.lnf(h[:, -1]), network.wte.embeddings, transpose_b=True)


class Decoding(contract.Decoding):
    def __init__(self, setup):
        if KERAS_2:
            raise Unsupported("Keras 2 has no dot_product_attention; Keras 3.7 is the first")
        from bench.frameworks.keras import _stacked, gpt_bytes

        self.stacked, self.cache = _stacked, []
        self.network = gpt_bytes.Network(NETWORK.vocabulary, NETWORK.length, LAYERS, HEADS, WIDTH)
        self.decode = function(self._decode, FASTER_BY_XLA)

    def load(self, parameters):
        self.stacked.fill(self.network, parameters)

    def prefill(self, prompts):
        shape = len(prompts), HEADS, CAPACITY, WIDTH // HEADS
        # The cache of an earlier sequence stays: a step sees no position before it has written it.
        if not self.cache or self.cache[0][0].shape != shape:
            self.cache = [[tf.Variable(tf.zeros(shape), False) for _ in range(2)] for _ in range(LAYERS)]
        self.place = tf.zeros((), tf.int32)
        return self.take(prompts)

    def step(self, tokens):
        return self.take(tokens[:, None])

    def take(self, x):
        self.last, self.place, token = self.decode(self.cache, tf.constant(x), self.place)
        return token.numpy()

    # The cache is an argument: so a function that was traced for one batch's variables never meets another batch's.
    def _decode(self, cache, x, place):
        logits = logits_of(self.network, x, cache, place, by_xla(FASTER_BY_XLA))
        return logits, place + x.shape[1], tf.argmax(logits, 1, tf.int32)

    def logits(self):
        return self.last.numpy()

    def cached(self):
        return [kept.numpy() for block in self.cache for kept in block]
