"""The IMDB network in PyTorch: Embedding, the fused GRU, one dense layer on the last state.

Idiomatic here: nn.GRU is cuDNN's fused kernel on a GPU (C1) and its gates are stacked r, z, n with two biases, which is the
specification's own form; batch_first keeps the data as it comes (C3: time first is slightly faster, and not what is compared).
"""

import torch
import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch._mixed import Mixed
from bench.frameworks.torch.framework import compiled, to_device, torch_device

# canonical name -> torch's
NAMES = {
    "embedding": "embedding.weight",
    "gru.w": "gru.weight_ih_l0",
    "gru.b": "gru.bias_ih_l0",
    "gru.u": "gru.weight_hh_l0",
    "gru.c": "gru.bias_hh_l0",
    "dense.w": "dense.weight",
    "dense.b": "dense.bias",
}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30000, 125)
        self.gru = nn.GRU(125, 100, batch_first=True)
        self.dense = nn.Linear(100, 2)

    def forward(self, x):
        _, last = recurrent(
            self.gru, self.embedding(x)
        )  # C6: without a given state it starts from zero, and that is not trained
        return self.dense(last[0])  # C5: the state after position 150, padding included


def recurrent(gru, x):
    """The GRU in the half type wherever autocast is on: for cuDNN's it casts by itself, the CPU's it leaves in float32 (as of 2.13)."""
    if x.device.type == "cuda" or not torch.is_autocast_enabled("cpu"):
        return gru(x)
    half = torch.get_autocast_dtype("cpu")
    weights = {name: weight.to(half) for name, weight in gru.named_parameters()}
    return torch.func.functional_call(gru, weights, (x.to(half),))


class Training:
    def __init__(self, setup):
        torch.manual_seed(setup.seed)
        self.device = torch_device(setup)
        self.network = Network().to(self.device)
        self.compiled = compiled(setup, self.network)
        # C9: every constant set. The embedding's gradient is dense.
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.001, betas=(0.9, 0.999), eps=1e-8)
        self.mixed = Mixed(setup, self.optimizer)

    def load(self, parameters):
        self.network.load_state_dict({NAMES[name]: torch.from_numpy(value) for name, value in parameters.items()})
        self.optimizer.state.clear()

    def read(self):
        found = dict(self.network.named_parameters())
        return {name: found[NAMES[name]].detach().cpu().numpy() for name in NAMES}

    def inputs(self, x, y):
        return x.astype("int64"), y.astype("int64")

    def probe(self, x, y):
        self.network.train()
        x, y = to_device(self.device, x, y)
        self.optimizer.zero_grad()
        with self.mixed.forward():
            logits = self.compiled(x)
            loss = F.cross_entropy(logits, y)
        self.mixed.backward(loss)
        found = dict(self.network.named_parameters())
        gradients = {name: self.mixed.gradient(found[NAMES[name]]) for name in NAMES}
        return logits.detach().float().cpu().numpy(), loss.item(), gradients

    def step(self, x, y):
        self.network.train()
        x, y = to_device(self.device, x, y)
        self.optimizer.zero_grad()
        with self.mixed.forward():
            loss = F.cross_entropy(self.compiled(x), y)
        self.mixed.backward(loss)
        self.mixed.update()
        return loss

    def skipped(self):
        return self.mixed.skipped()

    def value(self, loss):
        return loss.item()

    @torch.no_grad()
    def predict(self, x):
        self.network.eval()
        with self.mixed.forward():
            return self.compiled(torch.from_numpy(x).to(self.device)).float().cpu().numpy()
