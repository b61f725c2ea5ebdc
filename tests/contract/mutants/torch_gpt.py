"""Mistakes in the GPT on bytes in PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch import gpt_bytes
from tests.contract.mutants.registry import Planted
from tests.contract.mutants.torch_adam import planted

# A cell takes half a minute: most of them run with DLBENCH_FAULTS=all only.
gpt, slow = Planted("torch", "gpt-bytes"), Planted("torch", "gpt-bytes", slow=True)
Training = gpt_bytes.Training
LENGTH, WIDTH = 256, 384


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


class WithMask(WithAttention):
    """A subclass gives seen(distance): whether a position sees one that is `distance` positions before it."""

    def attend(self, q, k, v):
        places = torch.arange(q.shape[2])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.seen(places[:, None] - places))


class WithForward(Training):
    """A subclass changes forward(network, x)."""

    def new(self):
        network = super().new()
        network.forward = lambda x: self.forward(network, x)
        return network

    def forward(self, network, x):
        return self.head(network, self.blocks(network, self.embedded(network, x)))

    def embedded(self, network, x):
        return network.wte(x) + network.wpe.weight

    def blocks(self, network, h):
        for block in network.blocks:
            h = block(h)
        return h

    def head(self, network, h):
        return F.linear(network.lnf(h), network.wte.weight)


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


@gpt.mistake("network")
class GeluByErf(Training):
    """GELU by the error function, which is PyTorch's default."""

    def new(self):
        network = super().new()
        for block in network.blocks:
            block.forward = self.forward_of(block)
        return network

    def forward_of(self, block):
        def forward(h):
            h = h + block.attention(block.ln1(h))
            return h + block.out(F.gelu(block.fc(block.ln2(h))))

        return forward


class EpsilonOf(Training):
    def new(self):
        network = super().new()
        for module in network.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = self.EPSILON
        return network


@slow.mistake("network")
class EpsilonOfFlax(EpsilonOf):
    """The normalisations' epsilon is 1e-6, Flax's default."""

    EPSILON = 1e-6


@slow.mistake("network")
class EpsilonOfKeras(EpsilonOf):
    """The normalisations' epsilon is 1e-3, Keras' default."""

    EPSILON = 1e-3


@gpt.mistake("network")
class OneFutureByte(WithMask):
    """Each position sees the one after it, too."""

    def seen(self, distance):
        return distance >= -1


@slow.mistake("network")
class ScaledByTheWidth(WithAttention):
    """Scores are divided by the root of the width, and not of a head's."""

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q * (q.shape[3] / WIDTH) ** 0.5, k, v, is_causal=True)


@gpt.mistake("length")
class AttentionOver128(WithMask):
    """A position sees itself and the 127 before it."""

    def seen(self, distance):
        return (distance >= 0) & (distance < LENGTH // 2)


@gpt.mistake("length")
class PositionsModulo128(WithForward):
    """Positions from 128 on have the vectors of those from 0 on."""

    def embedded(self, network, x):
        return network.wte(x) + network.wpe.weight[: LENGTH // 2].repeat(2, 1)


@slow.mistake("length")
class PositionsFromOne(WithForward):
    """Positions are counted from 1; the last has the vector of the first."""

    def embedded(self, network, x):
        return network.wte(x) + network.wpe.weight.roll(-1, 0)


@gpt.mistake("network")
class HeadNotTied(WithForward):
    """The gradient of the embedding lacks that of the head."""

    def head(self, network, h):
        return F.linear(network.lnf(h), network.wte.weight.detach())


@slow.mistake("network")
class StackedByHeads(WithAttention):
    """The layer of q, k and v gives those of a head after those of another."""

    def heads(self, attention, x):
        stacked = attention.qkv(x).view(len(x), x.shape[1], attention.heads, 3, -1)
        return stacked.permute(3, 0, 2, 1, 4).unbind()


@slow.mistake("network")
class NormLeftOut(Training):
    """There is no first normalisation in the first block."""

    def new(self):
        network = super().new()
        norm = network.blocks[0].ln1
        # Its scale and shift have gradients of zero, and not none.
        norm.forward = lambda h: h + 0.0 * (norm.weight + norm.bias)
        return network


@slow.mistake("loss")
class LossOfHalfThePositions(Training):
    """The loss is that of the last half of the positions."""

    def loss(self, x, y):
        logits = self.compiled(x)
        half = LENGTH // 2
        return logits, F.cross_entropy(logits[:, half:].flatten(0, 1), y[:, half:].flatten().long())


# -- optimiser ---------------------------------------------------------------------------------------------------------


@slow.mistake("optimiser")
class Beta2OfAdamsPaper(planted(Training, lambda p: torch.optim.Adam(p, 0.001, (0.9, 0.999), 1e-8))):
    """The second moment's factor is 0.999."""


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


@slow.mistake("network")
class RowOfTheLastPositionFrozen(WithForward):
    """The last position's vector is not trained."""

    def embedded(self, network, x):
        wpe = network.wpe.weight
        return network.wte(x) + torch.cat([wpe[:-1], wpe[-1:].detach()])


@slow.mistake("data")
class SameByte(Training):
    """The label of a byte is the byte itself."""

    def loss(self, x, y):
        return super().loss(x, x)
