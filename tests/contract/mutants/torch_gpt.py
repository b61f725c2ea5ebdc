"""Mistakes in the GPT on bytes in PyTorch; most of them are texts, in edits.py."""

import torch
import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch import gpt_bytes
from tests.contract.mutants.registry import Planted
from tests.contract.mutants.torch_adam import planted

# A cell takes half a minute: most of them run with DLBENCH_FAULTS=all only.
gpt, slow = Planted("torch", "gpt-bytes"), Planted("torch", "gpt-bytes", slow=True)
Training = gpt_bytes.Training
WIDTH = 384


class WithAttention(Training):
    """A subclass changes attend(q, k, v), each (N, heads, T, D)."""

    def new(self):
        network = super().new()
        for block in network.blocks:
            block.attention.forward = self.forward_of(block.attention)
        return network

    def forward_of(self, attention):
        def forward(x):
            y = self.attend(*self.heads(attention, x))
            return attention.proj(y.transpose(1, 2).reshape(x.shape))

        return forward

    def heads(self, attention, x):
        parts = attention.qkv(x).split(WIDTH, 2)
        return [part.view(len(x), x.shape[1], attention.heads, -1).transpose(1, 2) for part in parts]

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# -- rewrites ----------------------------------------------------------------------------------------------------------


@slow.rewrite
class AttentionWrittenOut(WithAttention):
    """Attention as two products and a softmax."""

    def attend(self, q, k, v):
        scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
        later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(3) @ v


@slow.rewrite
class KeysBiasLeftOut(WithAttention):
    """The keys have no bias: the same function."""

    def heads(self, attention, x):
        q, k, v = F.linear(x, attention.qkv.weight).split(WIDTH, 2)
        bias = attention.qkv.bias
        parts = q + bias[:WIDTH], k, v + bias[2 * WIDTH :]
        return [part.view(len(x), x.shape[1], attention.heads, -1).transpose(1, 2) for part in parts]


# -- network -----------------------------------------------------------------------------------------------------------


@slow.mistake("network")
class NormLeftOut(Training):
    """There is no first normalisation in the first block."""

    def new(self):
        network = super().new()
        norm = network.blocks[0].ln1
        # Its scale and shift have gradients of zero, and not none.
        norm.forward = lambda h: h + 0.0 * (norm.weight + norm.bias)
        return network


# -- optimiser ---------------------------------------------------------------------------------------------------------


@gpt.mistake("optimiser")
class EpsilonOfKerasAdam(planted(Training, lambda p: torch.optim.Adam(p, 0.001, (0.9, 0.99), 1e-7))):
    """Adam's epsilon is 1e-7, Keras' default."""


@slow.mistake("regularisation")
class DecayInAdamW(planted(Training, lambda p: torch.optim.AdamW(p, 0.001, (0.9, 0.99), 1e-8, 1e-2))):
    """AdamW with its default weight decay of 0.01."""


@slow.mistake(
    "regularisation",
    not_caught="A step moves by the rate, and this decay is a ten-thousandth of a scale of it: one bound.",
)
class SmallDecayInAdamW(planted(Training, lambda p: torch.optim.AdamW(p, 0.001, (0.9, 0.99), 1e-8, 1e-4))):
    """AdamW with a weight decay of 0.0001."""


@slow.mistake("optimiser")
class GradientCutAtOne(Training):
    """The norm of the gradient is cut at 1, as nanoGPT cuts it."""

    def __init__(self, setup):
        super().__init__(setup)
        update = self.mixed.update

        def cut():
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            update()

        self.mixed.update = cut
