"""Mistakes with the cache of GPT-2 token by token in PyTorch."""

import torch

from bench.frameworks.torch import gpt2_decode
from tests.contract.mutants.registry import Planted

# A cell takes half a minute: they run with DLBENCH_FAULTS=all only. tests/unit/bench/test_decoding.py has the like of a small network.
decode = Planted("torch", "gpt2-decode", slow=True)
Decoding = gpt2_decode.Decoding


class WithLogits(Decoding):
    """A subclass changes after(network, x, cache, places, seen), the logits after the tokens x."""

    def __init__(self, setup):
        super().__init__(setup)
        self.logits_of = self.after

    def after(self, network, x, cache, places, seen):
        return gpt2_decode.logits_of(network, x, cache, places, seen)


# -- the cache ---------------------------------------------------------------------------------------------------------


@decode.mistake("state")
class OnePositionLate(WithLogits):
    """Keys and values of a step are written one position after their own."""

    def after(self, network, x, cache, places, seen):
        late = (places + 1).clamp(max=gpt2_decode.CAPACITY - 1)
        own = network.wpe.weight
        # The vector of the position stays the right one.
        network.wpe.weight = torch.nn.Parameter(own.roll(1, 0))
        logits = super().after(network, x, cache, late, seen)
        network.wpe.weight = own
        return logits


@decode.mistake("state")
class EarlierSequenceKept(Decoding):
    """The second prompt leaves the keys and values of the first in the cache."""

    @torch.inference_mode()
    def prefill(self, prompts):
        kept = self.cache.clone() if self.cache.numel() else None
        tokens = super().prefill(prompts)
        if kept is not None and kept.shape == self.cache.shape:
            self.cache.copy_(kept)
        return tokens


@decode.mistake("state")
class RowsExchanged(Decoding):
    """Each row has the keys and values of another row's prompt."""

    @torch.inference_mode()
    def prefill(self, prompts):
        tokens = super().prefill(prompts)
        self.cache.copy_(self.cache.roll(1, 2))
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


# -- the measured object -----------------------------------------------------------------------------------------------


@decode.mistake("measured object")
class ShorterSequences(Decoding):
    """Of a prompt of more than 64 tokens only the last 64 are computed."""

    def prefill(self, prompts):
        return super().prefill(prompts[:, -64:].copy())


@decode.rewrite
class PrefixRemembered(Decoding):
    """A prompt that came before is answered from its keys and values. No sequence that is measured comes twice."""

    def load(self, parameters):
        super().load(parameters)
        self.known = {}

    @torch.inference_mode()
    def prefill(self, prompts):
        key, length = prompts.tobytes(), prompts.shape[1]
        if key not in self.known:
            tokens = super().prefill(prompts)
            self.known = {key: (self.cache[:, :, :, :, :length].clone(), self.last, tokens)}
            return tokens
        kept, self.last, tokens = self.known[key]
        self.cache[:, :, :, :, :length] = kept
        self.place.fill_(length)
        return tokens
