"""GPT-2 token by token in JAX: the modules of _gpt.py over a cache of a fixed size, a prompt and a step each as one jitted function.

Idiomatic here: the cache is an argument and a result, which XLA updates in place where it is donated (on a GPU). A step writes keys and
values by dynamic_update_slice and sees the whole cache under a mask, so that every position has the same shapes and one compilation. Only
the last position of a prompt goes through the head. The position stays on the device. At fp16 and bf16 parameters and cache are that
type's.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench import contract, mixed
from bench.errors import Unsupported
from bench.frameworks.jax import _gpt
from bench.frameworks.jax._flax import get_value
from bench.frameworks.jax.framework import donated, undrawn
from bench.workloads.gpt2_decode import GENERATED, NETWORK, PROMPT

CAPACITY = PROMPT + GENERATED
LAYERS, HEADS, WIDTH = NETWORK.layers, NETWORK.heads, NETWORK.width


def attend(block, x, cache, place):
    """(attended x, cache (2, N, capacity, heads, size) of one block with the keys and values of x from `place` on)."""
    parts = jnp.split(block.qkv(x), 3, axis=-1)
    q, k, v = (part.reshape(x.shape[:2] + (HEADS, -1)) for part in parts)
    cache = jax.lax.dynamic_update_slice(cache, jnp.stack([k, v]), (0, 0, place, 0, 0))
    if x.shape[1] > 1:
        y = _gpt.attention(q, k, v)
    else:
        seen = (jnp.arange(CAPACITY) <= place)[None, None, None]
        y = jax.nn.dot_product_attention(q, cache[0], cache[1], mask=seen)
    return block.proj(y.reshape(x.shape)), cache


def logits_of(network, x, cache, place):
    """(logits (N, vocabulary) after the tokens x (N, T) from `place` on, the cache of each block with their keys and values)."""
    places = place + jnp.arange(x.shape[1])
    h = get_value(network.wte.embedding)[x] + get_value(network.wpe.embedding)[places]
    new = []
    for layer, own in enumerate(cache):
        block = getattr(network, "h%d" % layer)
        attended, own = attend(block, block.ln1(h), own, place)
        h = h + attended
        h = h + block.out(nnx.gelu(block.fc(block.ln2(h)), approximate=True))
        new.append(own)
    return network.lnf(h[:, -1]) @ get_value(network.wte.embedding).T, new


class Decoding(contract.Decoding):
    def __init__(self, setup):
        if not hasattr(jax.nn, "dot_product_attention"):
            raise Unsupported("JAX %s has no dot_product_attention; JAX 0.4.31 is the first" % jax.__version__)
        sizes = NETWORK.vocabulary, NETWORK.length, LAYERS, HEADS, WIDTH
        self.structure, self.parameters = undrawn(lambda: _gpt.Network(*sizes, dtype=None, rngs=nnx.Rngs(setup.seed)))
        self.kind = jnp.dtype(mixed.whole(setup.precision) or "float32")
        self.cache = []
        # The position is the cell's next one, on the device. JAX keeps what it knows of a function: this one holds no parameters.
        structure = self.structure

        def decode(parameters, cache, x, place):
            logits, cache = logits_of(nnx.merge(structure, parameters), x, cache, place)
            return logits, cache, place + x.shape[1], logits.argmax(1).astype("int32")

        # Compiled, as people run it for speed.
        self.decode = jax.jit(decode, donate_argnums=donated(1))

    def load(self, parameters):
        _gpt.fill(self.parameters, parameters, _gpt.places(LAYERS))
        self.parameters = jax.tree.map(lambda value: value.astype(self.kind), self.parameters)

    def prefill(self, prompts):
        shape = 2, len(prompts), CAPACITY, HEADS, WIDTH // HEADS
        # The cache of an earlier sequence stays: a step sees no position before it has written it.
        if not self.cache or self.cache[0].shape != shape:
            self.cache = [jnp.zeros(shape, self.kind) for _ in range(LAYERS)]
        self.place = jnp.zeros((), jnp.int32)
        return self.take(prompts)

    def step(self, tokens):
        return self.take(tokens[:, None])

    def take(self, x):
        self.last, self.cache, self.place, token = self.decode(self.parameters, self.cache, x, self.place)
        return np.asarray(token)

    def logits(self):
        return np.asarray(self.last.astype(jnp.float32))

    def cached(self):
        return [np.asarray(block.astype(jnp.float32)) for block in self.cache]
