"""GPT-2 token by token in PyTorch: the modules of _gpt.py over a cache of a fixed size.

Idiomatic here, as in gpt-fast: the cache is allocated once and written in place, so a step has the same shapes at every position. The
attention of a step sees the whole cache under a mask; that of a prompt takes the fused causal kernel. Only the last position of a prompt
goes through the head. The position lies on the device: a step brings one token of each sequence there, and one back. In mode compile
the step is compiled, in mode graph it is recorded; a prompt runs eagerly in both. At fp16 and bf16 parameters and cache are that type's.
"""

import torch
import torch.nn.functional as F

from bench import contract, mixed
from bench.errors import Unsupported
from bench.frameworks.torch import _gpt
from bench.frameworks.torch._steps import steps_of
from bench.frameworks.torch.framework import to_device, torch_device
from bench.workloads.gpt2_decode import GENERATED, NETWORK, PROMPT

CAPACITY = PROMPT + GENERATED
LAYERS, HEADS, WIDTH = NETWORK.layers, NETWORK.heads, NETWORK.width


def attend(attention, x, cache, places, seen):
    """cache (2, N, heads, capacity, size): of one block; seen (1, capacity): the positions that a step sees, None of a prompt."""
    many, length, width = x.shape
    parts = attention.qkv(x).split(width, 2)
    q, k, v = (part.view(many, length, attention.heads, -1).transpose(1, 2) for part in parts)
    cache[0].index_copy_(2, places, k)
    cache[1].index_copy_(2, places, v)
    if seen is None:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=seen)
    return attention.proj(y.transpose(1, 2).reshape(many, length, width))


def logits_of(network, x, cache, places, seen):
    """The logits (N, vocabulary) after the tokens x (N, T) at these places, whose keys and values go into the cache."""
    h = network.wte(x) + network.wpe(places)
    for block, own in zip(network.blocks, cache):
        h = h + attend(block.attention, block.ln1(h), own, places, seen)
        h = h + block.out(F.gelu(block.fc(block.ln2(h)), approximate="tanh"))
    return F.linear(network.lnf(h[:, -1]), network.wte.weight)


class Decoding(contract.Decoding):
    def __init__(self, setup):
        if not hasattr(F, "scaled_dot_product_attention"):
            raise Unsupported("PyTorch %s has no fused attention; PyTorch 2.0 is the first" % torch.__version__)
        self.device = torch_device(setup)
        half = mixed.whole(setup.precision)
        self.kind = getattr(torch, half) if half else torch.float32
        self.network = (
            _gpt.Network(NETWORK.vocabulary, NETWORK.length, LAYERS, HEADS, WIDTH).eval().to(self.device, self.kind)
        )
        self.positions = torch.arange(CAPACITY, device=self.device)
        self.place = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.cache = torch.empty(0, device=self.device)
        # Of fixed shapes: a batch of another size is compiled anew.
        self.logits_of = torch.compile(logits_of, dynamic=False) if setup.mode == "compile" else logits_of
        self.run = steps_of(setup, self.device, self._step)

    def load(self, parameters):
        _gpt.load(self.network, parameters)

    # No gradients in inference: they cost memory and time.
    @torch.inference_mode()
    def prefill(self, prompts):
        many, length = prompts.shape
        shape = LAYERS, 2, many, HEADS, CAPACITY, WIDTH // HEADS
        if self.cache.shape != shape:
            self.cache = torch.zeros(shape, dtype=self.kind, device=self.device)
        # The cache of an earlier sequence stays: a step sees no position before it has written it.
        self.place.fill_(length)
        (x,) = to_device(self.device, prompts)
        self.last = logits_of(self.network, x, self.cache, self.positions[:length], None)
        return self.last.argmax(1).int().cpu().numpy()

    @torch.inference_mode()
    def step(self, tokens):
        token, self.last = self.run(tokens)
        return token.cpu().numpy()

    def _step(self, tokens):
        seen = (self.positions <= self.place)[None]
        logits = self.logits_of(self.network, tokens[:, None], self.cache, self.place, seen)
        self.place += 1
        return logits.argmax(1).int(), logits

    def logits(self):
        return self.last.float().cpu().numpy()

    def cached(self):
        return [block.float().cpu().numpy() for block in self.cache]
