"""Mistakes with the cache of GPT-2 token by token in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench.frameworks.jax import gpt2_decode
from bench.frameworks.jax._flax import get_value
from bench.workloads.gpt2_decode import PARITY_PROMPT
from tests.contract.mutants.registry import Planted

# A cell takes half a minute: they run with DLBENCH_FAULTS=all only. tests/unit/bench/test_decoding.py has the like of a small network.
decode = Planted("jax", "gpt2-decode", slow=True)
Decoding = gpt2_decode.Decoding
attend, logits_of, product = gpt2_decode.attend, gpt2_decode.logits_of, jax.nn.dot_product_attention


# -- the cache ---------------------------------------------------------------------------------------------------------


def attending_late(block, x, cache, place):
    return attend(block, x, cache, place + (x.shape[1] == 1))


@decode.mistake("state")
class OnePositionLate(Decoding):
    """Keys and values of a step are written one position after their own, and are seen there."""

    # The vector of the position stays the right one.
    PLANTED = ((gpt2_decode, "attend", attending_late),)


@decode.mistake("state")
class EarlierSequenceKept(Decoding):
    """The second prompt leaves the keys and values of the first in the cache."""

    def prefill(self, prompts):
        kept = self.cache
        tokens = super().prefill(prompts)
        if kept and kept[0].shape == self.cache[0].shape:
            self.cache = kept
        return tokens


@decode.mistake("state")
class RowsExchanged(Decoding):
    """Each row has the keys and values of another row's prompt."""

    def prefill(self, prompts):
        tokens = super().prefill(prompts)
        self.cache = [jnp.roll(own, 1, axis=1) for own in self.cache]
        return tokens


# -- positions and the mask --------------------------------------------------------------------------------------------


def with_one_position(network, x, cache, place):
    if x.shape[1] == 1:
        own = get_value(network.wpe.embedding)
        network.wpe.embedding = nnx.Param(jnp.broadcast_to(own[PARITY_PROMPT], own.shape))
    return logits_of(network, x, cache, place)


@decode.mistake("network")
class PositionNotAdvanced(Decoding):
    """Every step has the vector of the first position after a short prompt; its keys go where they belong."""

    PLANTED = ((gpt2_decode, "logits_of", with_one_position),)


def without_mask(q, k, v, mask=None, **how):
    return product(q, k, v, **how)


@decode.mistake("network")
class MaskMissing(Decoding):
    """A step sees the whole cache: positions that are still zeros, or an earlier sequence's."""

    PLANTED = ((jax.nn, "dot_product_attention", without_mask),)


# -- the measured object -----------------------------------------------------------------------------------------------


@decode.mistake("measured object")
class ShorterSequences(Decoding):
    """Of a prompt of more than 64 tokens only the last 64 are computed."""

    def prefill(self, prompts):
        return super().prefill(prompts[:, -64:].copy())


# Of a single step the choice may be unclear, and then its token is not held.
@decode.mistake("timing", steps=8)
class ToldBeforeItIsComputed(Decoding):
    """A step does not wait for its token: it returns zeros, and fills them in when the next one begins."""

    def prefill(self, prompts):
        self.owed = None
        return super().prefill(prompts)

    def step(self, tokens):
        if self.owed:
            told, computed = self.owed
            told[:] = computed
        self.last, self.cache, self.place, token = self.decode(self.parameters, self.cache, tokens[:, None], self.place)
        self.owed = np.zeros_like(tokens), token
        return self.owed[0]
