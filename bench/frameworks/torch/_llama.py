"""LLaMA's network in PyTorch, with one feed-forward network or several experts a block.

Idiomatic here: nn.RMSNorm; one Linear gives q, k and v, and another gate and up; F.scaled_dot_product_attention takes the heads of keys and
values in groups (enable_gqa). Experts are a ModuleList, as in Hugging Face's Transformers: each computes the positions that chose it and
adds them to the sum. Under autocast the normalisations, the sums of the blocks and the loss are float32.
"""

import torch
import torch.nn.functional as F
from torch import nn

from bench.errors import Unsupported
from bench.frameworks.torch import _gpt

# canonical name -> torch's, of a block, and of an expert. Of a list the parts are one layer's.
PARTS = {"n1": "n1", "o": "attention.o", "n2": "n2", "router": "ffn.router"}
PARTS.update({"q": "attention.qkv", "k": "attention.qkv", "v": "attention.qkv"})
OF_EXPERT = {"gate": "gate_up", "up": "gate_up", "down": "down"}
ENDS = {"wte": "wte.weight", "nf": "nf.weight", "head": "head.weight"}


def rotation(length, size):
    """(cosine, sine) (length, size) of the positions' angles, each half of a head's numbers alike."""
    frequencies = 10000.0 ** (-torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotated(x, cosine, sine):
    """x (N, heads, T, D): number i and number i + D / 2 as a pair."""
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat((-b, a), -1) * sine


class Attention(nn.Module):
    def __init__(self, width, heads, groups, length):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.parts = width, groups * self.size, groups * self.size
        self.qkv, self.o = nn.Linear(width, sum(self.parts), bias=False), nn.Linear(width, width, bias=False)
        for name, table in zip(("cosine", "sine"), rotation(length, self.size)):
            self.register_buffer(name, table, persistent=False)

    def forward(self, x):
        many, length, width = x.shape
        parts = self.qkv(x).split(self.parts, 2)
        q, k, v = (part.view(many, length, -1, self.size).transpose(1, 2) for part in parts)
        q, k = (rotated(part, self.cosine[:length], self.sine[:length]) for part in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(many, length, width))


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Experts(nn.Module):
    """`spread` is the last call's term of the loss that spreads the work, without its factor."""

    def __init__(self, width, hidden, experts, chosen):
        super().__init__()
        self.chosen, self.router = chosen, nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([FeedForward(width, hidden) for _ in range(experts)])

    def forward(self, x):
        flat = x.flatten(0, 1)
        numbers = self.router(flat)
        top, places = numbers.topk(self.chosen, -1)
        weights = top.softmax(-1)
        y = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, order = torch.where(places == number)
            y.index_add_(0, rows, expert(flat[rows]) * weights[rows, order, None])
        shares = F.one_hot(places, len(self.experts)).float().mean((0, 1))
        self.spread = len(self.experts) * (shares * numbers.softmax(-1).mean(0)).sum()
        return y.view_as(x)


class Block(nn.Module):
    def __init__(self, width, heads, groups, length, hidden, experts, chosen):
        super().__init__()
        # PyTorch's epsilon is the type's own unless it is told.
        self.n1, self.n2 = (nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.attention = Attention(width, heads, groups, length)
        self.ffn = Experts(width, hidden, experts, chosen) if experts else FeedForward(width, hidden)

    def forward(self, h):
        h = h + self.attention(self.n1(h))
        return h + self.ffn(self.n2(h))


class Network(nn.Module):
    def __init__(self, vocabulary, length, layers, heads, groups, width, hidden, experts=0, chosen=0):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        blocks = [Block(width, heads, groups, length, hidden, experts, chosen) for _ in range(layers)]
        self.blocks, self.nf = nn.ModuleList(blocks), nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        h = self.wte(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.nf(h))


class Trained(_gpt.Trained):
    """A subclass gives SIZES, the arguments of Network, and optimizer_of(setup)."""

    def new(self):
        if not hasattr(nn, "RMSNorm"):
            raise Unsupported("PyTorch %s has no RMSNorm; PyTorch 2.4 is the first" % torch.__version__)
        return Network(**self.SIZES)

    def own_name(self, name):
        block, _, rest = name.partition(".")
        if name in ENDS:
            return ENDS[name]
        prefix, (expert, _, part) = "blocks.%s." % block[1:], rest.rpartition(".")
        if rest in PARTS:
            return prefix + PARTS[rest] + ".weight"
        return prefix + ("ffn.experts.%s." % expert[1:] if expert else "ffn.") + OF_EXPERT[part] + ".weight"
