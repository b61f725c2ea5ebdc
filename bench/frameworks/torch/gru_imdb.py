"""The IMDB network in PyTorch: Embedding, the fused GRU, one dense layer on the last state.

Idiomatic here: on a GPU nn.GRU is cuDNN's fused kernel. Its gates are stacked r, z, n with two biases, the specification's own form: the
reset gate is applied after the product. Time comes first, as the kernels want it: the ids are transposed, which costs less than the
vectors. Adam is one fused kernel.
"""

import torch
import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch._mixed import Mixed, WithAdam, functional_call, half_on_a_cpu
from bench.frameworks.torch._steps import steps_of
from bench.frameworks.torch.framework import adam, compiled, to_device, torch_device

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
        self.gru = nn.GRU(125, 100)
        self.dense = nn.Linear(100, 2)

    def forward(self, x):
        # The first state is zero and not trained.
        _, last = recurrent(self.gru, self.embedding(x.t()))
        # The output of the last position, padding included.
        return self.dense(last[0])


def recurrent(gru, x):
    """The GRU in autocast's half type. Autocast casts for cuDNN's GRU, but not for the CPU's (as of PyTorch 2.13): this function does."""
    half = half_on_a_cpu()
    if x.device.type == "cuda" or half is None:
        return gru(x)
    weights = {name: weight.to(half) for name, weight in gru.named_parameters()}
    return functional_call(gru, weights, (x.to(half),))


class Training(WithAdam):
    def __init__(self, setup):
        torch.manual_seed(setup.seed)
        self.device = torch_device(setup)
        self.network = Network().to(self.device)
        self.compiled = compiled(setup, self.network)
        # The embedding's gradient is dense.
        self.optimizer = adam(setup, self.network, 0.001)
        self.mixed = Mixed(setup, self.optimizer)
        self.run = steps_of(setup, self.device, self._step)

    def load(self, parameters):
        self.network.load_state_dict({NAMES[name]: torch.from_numpy(value) for name, value in parameters.items()})
        self.mixed.restart()
        self.run.restart(self.optimizer)

    def read(self):
        tensors = dict(self.network.named_parameters())
        return {name: tensors[NAMES[name]].detach().cpu().numpy() for name in NAMES}

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
        tensors = dict(self.network.named_parameters())
        gradients = {name: self.mixed.gradient(tensors[NAMES[name]]) for name in NAMES}
        return logits.detach().float().cpu().numpy(), loss.item(), gradients

    def _step(self, x, y):
        self.network.train()
        self.optimizer.zero_grad()
        with self.mixed.forward():
            # The loss takes logits: there is exactly one softmax.
            loss = F.cross_entropy(self.compiled(x), y)
        self.mixed.backward(loss)
        self.mixed.update()
        return loss

    # No gradients in evaluation: they cost memory and time.
    @torch.no_grad()
    def predict(self, x):
        self.network.eval()
        with self.mixed.forward():
            return self.compiled(torch.from_numpy(x).to(self.device)).float().cpu().numpy()
