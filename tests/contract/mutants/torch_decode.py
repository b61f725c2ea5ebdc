"""Mistakes with the cache of GPT-2 token by token in PyTorch."""

import torch

from bench.frameworks.torch import gpt2_decode
from tests.contract.mutants.registry import Planted

# A cell takes half a minute: most of them run with DLBENCH_FAULTS=all only.
decode, slow = Planted("torch", "gpt2-decode"), Planted("torch", "gpt2-decode", slow=True)
Decoding = gpt2_decode.Decoding


class WithLogits(Decoding):
    """A subclass changes after(network, x, cache, places, seen), the logits after the tokens x."""

    def __init__(self, setup):
        super().__init__(setup)
        self.logits_of = self.after

    def after(self, network, x, cache, places, seen):
        return gpt2_decode.logits_of(network, x, cache, places, seen)


# -- rewrites ----------------------------------------------------------------------------------------------------------


@slow.rewrite
class CacheEmptied(Decoding):
    """Each prompt begins with a cache of zeros."""

    def prefill(self, prompts):
        self.cache = torch.empty(0)
        return super().prefill(prompts)


@slow.rewrite
class PromptTokenByToken(Decoding):
    """The prompt goes through the steps, one token after another."""

    def prefill(self, prompts):
        super().prefill(prompts[:, :2].copy())
        for place in range(2, prompts.shape[1]):
            tokens = self.step(prompts[:, place].copy())
        return tokens


# -- the cache ---------------------------------------------------------------------------------------------------------


@slow.mistake("state")
class OnePositionLate(WithLogits):
    """Keys and values of a step are written one position after their own."""

    def after(self, network, x, cache, places, seen):
        h_places = (places + 1).clamp(max=gpt2_decode.CAPACITY - 1)
        own = network.wpe.weight
        # The vector of the position stays the right one.
        network.wpe.weight = torch.nn.Parameter(own.roll(1, 0))
        logits = super().after(network, x, cache, h_places, seen)
        network.wpe.weight = own
        return logits


@decode.mistake("state")
class EarlierSequenceKept(Decoding):
    """The second prompt leaves the keys and values of the first in the cache."""

    def prefill(self, prompts):
        kept = self.cache.clone() if self.cache.numel() else None
        tokens = super().prefill(prompts)
        if kept is not None and kept.shape == self.cache.shape:
            self.cache.copy_(kept)
        return tokens


@slow.mistake("state")
class StepsNotWritten(WithLogits):
    """A step does not leave its keys and values in the cache: the next ones see the prompt only."""

    def after(self, network, x, cache, places, seen):
        return super().after(network, x, cache.clone(), places, seen)


@decode.mistake("state")
class RowsExchanged(Decoding):
    """Each row has the keys and values of another row's prompt."""

    def prefill(self, prompts):
        tokens = super().prefill(prompts)
        self.cache.copy_(self.cache.roll(1, 2))
        return tokens


@slow.mistake("omission")
class OneValueLeftOut(Decoding):
    """The value of one position of the prompt is missing, in one of twelve heads of the last block."""

    def prefill(self, prompts):
        tokens = super().prefill(prompts)
        self.cache[-1, 1, :, -1, 3] = 0
        return tokens


# -- positions and the mask --------------------------------------------------------------------------------------------


@decode.mistake("network")
class PositionNotAdvanced(WithLogits):
    """Every step has the vector of the first position after the prompt; its keys go where they belong."""

    def prefill(self, prompts):
        self.begin = prompts.shape[1]
        return super().prefill(prompts)

    def after(self, network, x, cache, places, seen):
        own = network.wpe.weight
        network.wpe.weight = torch.nn.Parameter(own[self.begin].expand(own.shape).clone())
        logits = super().after(network, x, cache, places, seen)
        network.wpe.weight = own
        return logits


@decode.mistake("network")
class MaskMissing(WithLogits):
    """A step sees the whole cache: positions that are still zeros, or an earlier sequence's."""

    def after(self, network, x, cache, places, seen):
        return super().after(network, x, cache, places, torch.ones_like(seen))


@slow.mistake("network")
class ItselfNotSeen(WithLogits):
    """A step sees the positions before it, and not its own."""

    def after(self, network, x, cache, places, seen):
        return super().after(network, x, cache, places, (self.positions < places)[None])


@slow.mistake("network")
class PromptNotCausal(Decoding):
    """A position of the prompt sees those after it."""

    def prefill(self, prompts):
        attend = torch.nn.functional.scaled_dot_product_attention
        gpt2_decode.F.scaled_dot_product_attention = lambda q, k, v, is_causal=False, attn_mask=None: attend(
            q, k, v, attn_mask=attn_mask
        )
        tokens = super().prefill(prompts)
        gpt2_decode.F.scaled_dot_product_attention = attend
        return tokens


# -- the measured object -----------------------------------------------------------------------------------------------


@decode.mistake("measured object")
class OnlyTheProofComputed(Decoding):
    """From the tenth step of a sequence at batch 1 on, a step returns the token of the step before."""

    def prefill(self, prompts):
        self.taken = 0
        self.token = super().prefill(prompts)
        return self.token

    def step(self, tokens):
        self.taken += 1
        if self.taken < 10 or len(tokens) > 1:
            self.token = super().step(tokens)
        return self.token


@slow.mistake("measured object")
class ShorterSequences(Decoding):
    """Of a prompt of more than 64 tokens only the last 64 are computed."""

    def prefill(self, prompts):
        return super().prefill(prompts[:, -64:].copy())


@slow.mistake("measured object")
class OwnTokensFed(Decoding):
    """At batch 1 a step takes its own last greedy token, not the one that is given."""

    def prefill(self, prompts):
        self.token = super().prefill(prompts)
        return self.token

    def step(self, tokens):
        self.token = super().step(self.token if len(tokens) == 1 else tokens)
        return self.token
