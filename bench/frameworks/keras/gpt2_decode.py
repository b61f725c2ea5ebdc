"""GPT-2 token by token in Keras 3: the layers of gpt_bytes.py over a cache of a fixed size; the same file on every backend.

Idiomatic here, as in KerasHub: the cache is an argument and a result of one function, which each backend's compiler compiles, and which
writes keys and values by slice_update. A step sees the whole cache under a mask, so that every position has the same shapes and one
compilation. Only the last position of a prompt goes through the head. The position stays on the device.
"""

from keras import ops

from bench import contract
from bench.frameworks.keras import _decoders, _stacked, gpt_bytes
from bench.workloads.gpt2_decode import GENERATED, NETWORK, PROMPT

CAPACITY = PROMPT + GENERATED
LAYERS, HEADS, WIDTH = NETWORK.layers, NETWORK.heads, NETWORK.width
# Between (N, positions, heads, size) and (N, heads, positions, size), which the products of a step read as it lies in memory.
HEADS_FIRST = 0, 2, 1, 3


def attend(block, x, cache, place, seen):
    """(attended x, the cache of one block with the keys and values of x from `place` on).

    cache: keys and values, (N, heads, capacity, size) each; seen (1, 1, 1, capacity): the positions that a step sees, None of a prompt.
    """
    many, length, width = ops.shape(x)
    parts = ops.split(block.qkv(x), 3, axis=-1)
    q, k, v = (ops.reshape(part, (many, length, HEADS, width // HEADS)) for part in parts)
    cache = [_decoders.written(kept, ops.transpose(new, HEADS_FIRST), place) for kept, new in zip(cache, (k, v))]
    if seen is None:
        y = ops.dot_product_attention(q, k, v, is_causal=True)
    else:
        y = ops.dot_product_attention(q, *(ops.transpose(kept, HEADS_FIRST) for kept in cache), mask=seen)
    return block.proj(ops.reshape(y, (many, length, width))), cache


def decode(network, cache, x, place):
    """(logits (N, vocabulary) after the tokens x (N, T) from `place` on, cache with their keys and values, next place, greedy tokens)."""
    seen = None if x.shape[1] > 1 else (ops.arange(CAPACITY) <= place)[None, None, None]
    h = network.wte(x) + network.wpe(place + ops.arange(x.shape[1]))
    new = []
    for block, own in zip(network.blocks, cache):
        attended, own = attend(block, block.ln1(h), own, place, seen)
        h = h + attended
        h = h + block.out(ops.gelu(block.fc(block.ln2(h)), approximate=True))
        new.append(own)
    logits = ops.matmul(network.lnf(h[:, -1]), ops.transpose(network.wte.embeddings))
    return logits, new, place + x.shape[1], ops.cast(ops.argmax(logits, axis=1), "int32")


class Decoding(contract.Decoding):
    def __init__(self, setup):
        self.network = gpt_bytes.Network(NETWORK.vocabulary, NETWORK.length, LAYERS, HEADS, WIDTH)
        self.decoder = _decoders.make(self.network, decode)
        self.cache = []

    def load(self, parameters):
        _stacked.fill(self.network, parameters)
        self.decoder.start()

    def prefill(self, prompts):
        shape = len(prompts), HEADS, CAPACITY, WIDTH // HEADS
        # The cache of an earlier sequence stays: a step sees no position before it has written it.
        if not self.cache or tuple(self.cache[0][0].shape) != shape:
            self.cache = [[ops.zeros(shape) for _ in range(2)] for _ in range(LAYERS)]
        self.place = ops.zeros((), "int32")
        return self.take(prompts)

    def step(self, tokens):
        return self.take(tokens[:, None])

    def take(self, x):
        self.last, self.cache, self.place, token = self.decoder(self.cache, x, self.place)
        return ops.convert_to_numpy(token)

    def logits(self):
        return ops.convert_to_numpy(self.last)

    def cached(self):
        return [ops.convert_to_numpy(kept) for block in self.cache for kept in block]
