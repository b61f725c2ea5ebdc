"""GPT-2's network in PyTorch, and its training loop.

Idiomatic here: one Linear gives q, k and v, and F.scaled_dot_product_attention with is_causal takes the fused kernel that the device and
the type have (FlashAttention for half types on a GPU). The embedding's weight is the head's, too. Adam is one fused kernel. Under
autocast the normalisations, the sums of the blocks and the loss are float32.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bench import stacked
from bench.errors import Unsupported
from bench.frameworks.torch._mixed import Mixed, WithAdam
from bench.frameworks.torch._steps import steps_of
from bench.frameworks.torch.framework import compiled, to_device, torch_device

# canonical name -> torch's, of a block; q, k and v are the thirds of one layer.
PARTS = {"q": "attention.qkv", "k": "attention.qkv", "v": "attention.qkv"}
PARTS.update({"ln1": "ln1", "proj": "attention.proj", "ln2": "ln2", "fc": "fc", "out": "out"})
ENDS = {"w": "weight", "g": "weight", "b": "bias"}


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        many, length, width = x.shape
        q, k, v = (part.view(many, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(many, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.ln2, self.fc, self.out = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h):
        h = h + self.attention(self.ln1(h))
        # PyTorch's GELU is the exact one unless it is told.
        return h + self.out(F.gelu(self.fc(self.ln2(h)), approximate="tanh"))


class Network(nn.Module):
    def __init__(self, vocabulary, length, layers, heads, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.lnf = nn.LayerNorm(width)

    def forward(self, x):
        h = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return F.linear(self.lnf(h), self.wte.weight)


def own_name(name):
    """torch's name of a canonical one."""
    block, _, rest = name.rpartition(".")[0].partition(".")
    if name in ("wte", "wpe"):
        return name + ".weight"
    end = "." + ENDS[name[-1]]
    return "lnf" + end if block == "lnf" else "blocks.%s.%s" % (block[1:], PARTS[rest] + end)


def load(network, parameters, own_name=own_name):
    """Canonical parameters that have one name in torch are stacked there, in their order. Returns torch's name -> theirs."""
    parts = {}
    for name in parameters:
        parts.setdefault(own_name(name), []).append(name)
    joined = ((own, stacked.joined(parameters, names)) for own, names in parts.items())
    network.load_state_dict({own: torch.from_numpy(value) for own, value in joined})
    return parts


class Trained(WithAdam):
    """A subclass gives new(), the network, and optimizer_of(setup); of another network own_name(name), torch's name of a canonical one."""

    def __init__(self, setup):
        if not hasattr(F, "scaled_dot_product_attention"):
            raise Unsupported("PyTorch %s has no fused attention; PyTorch 2.0 is the first" % torch.__version__)
        torch.manual_seed(setup.seed)
        self.device = torch_device(setup)
        self.network = self.new().to(self.device)
        self.compiled = compiled(setup, self.network)
        self.optimizer = self.optimizer_of(setup)
        self.mixed = Mixed(setup, self.optimizer)
        self.run = steps_of(setup, self.device, self._step)

    def own_name(self, name):
        return own_name(name)

    def load(self, parameters):
        self.parts = load(self.network, parameters, self.own_name)
        self.rows = {name: len(value) for name, value in parameters.items()}
        self.mixed.restart()
        self.run.restart(self.optimizer)

    def canonical(self, array_of):
        """array_of(parameter) of every parameter, under the canonical names."""
        found = {}
        for own, parameter in self.network.named_parameters():
            found.update(stacked.parts(array_of(parameter), self.parts[own], self.rows, False))
        return found

    def read(self):
        return self.canonical(lambda parameter: parameter.detach().cpu().numpy())

    def inputs(self, x, y):
        return np.ascontiguousarray(x, dtype="int32"), np.ascontiguousarray(y, dtype="int32")

    def loss(self, x, y):
        """(logits, loss): the loss takes logits, so there is exactly one softmax."""
        with self.mixed.forward():
            logits = self.compiled(x)
            return logits, F.cross_entropy(logits.flatten(0, 1), y.flatten().long())

    def probe(self, x, y):
        self.optimizer.zero_grad()
        logits, loss = self.loss(*to_device(self.device, x, y))
        self.mixed.backward(loss)
        return logits.detach().float().cpu().numpy(), loss.item(), self.canonical(self.mixed.gradient)

    def _step(self, x, y):
        self.optimizer.zero_grad()
        _, loss = self.loss(x, y)
        self.mixed.backward(loss)
        self.mixed.update()
        return loss.detach()

    # No gradients in evaluation: they cost memory and time.
    @torch.no_grad()
    def predict(self, x):
        with self.mixed.forward():
            return self.compiled(torch.from_numpy(x).to(self.device)).float().cpu().numpy()
