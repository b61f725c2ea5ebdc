"""The CIFAR-10 network in PyTorch: a Module, an optimiser, a step written by hand.

Idiomatic here: pictures lie in memory as the device's convolutions want them (memory_format), and are seen as (N, C, H, W). Labels are
int64. From PyTorch 2.0 on zero_grad() frees the gradients; earlier it fills them with zeros.
"""

import torch
import torch.nn.functional as F
from torch import nn

from bench import contract
from bench.frameworks.torch._mixed import Mixed
from bench.frameworks.torch._steps import steps_of
from bench.frameworks.torch.framework import (
    compiled,
    memory_format,
    random_state,
    set_random_state,
    to_device,
    torch_device,
)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 50, 3, padding=1)
        self.conv2 = nn.Conv2d(50, 50, 3, padding=1)
        self.conv3 = nn.Conv2d(50, 100, 3, padding=1)
        self.conv4 = nn.Conv2d(100, 100, 3, padding=1)
        self.dense1 = nn.Linear(6400, 512)
        self.dense2 = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        # Dropout only in training.
        x = F.dropout(x, 0.25, self.training)
        x = F.relu(self.conv3(x))
        x = F.relu(F.max_pool2d(self.conv4(x), 2))
        x = F.dropout(x, 0.25, self.training)
        # The inputs of dense1 are in C, H, W order.
        x = F.relu(self.dense1(x.flatten(1)))
        x = F.dropout(x, 0.5, self.training)
        return self.dense2(x)


class Training(contract.Training):
    def __init__(self, setup):
        torch.manual_seed(setup.seed)
        self.device, self.format = torch_device(setup), memory_format(setup)
        self.dropout = setup.training
        self.network = Network().to(self.device, memory_format=self.format)
        self.compiled = compiled(setup, self.network)
        # Momentum: v = m v + g; w = w - rate v, without dampening or Nesterov.
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9)
        self.mixed = Mixed(setup, self.optimizer)
        self.run = steps_of(setup, self.device, self._step)
        # A replayed graph has a generator's place of its own.
        self.replayed = setup.mode == "graph"

    def load(self, parameters):
        state = {torch_name(name): torch.from_numpy(value) for name, value in parameters.items()}
        self.network.load_state_dict(state)
        self.mixed.restart()
        self.run.restart(self.optimizer)

    def read(self):
        return {canonical_name(name): p.detach().cpu().numpy() for name, p in self.network.named_parameters()}

    def inputs(self, x, y):
        # Seen as (N, C, H, W), however it lies in memory.
        return torch.from_numpy(x).to(memory_format=self.format).numpy(), y.astype("int64")

    def probe(self, x, y):
        self.network.train(self.dropout)
        x, y = to_device(self.device, x, y)
        self.optimizer.zero_grad()
        with self.mixed.forward():
            logits = self.compiled(x)
            loss = F.cross_entropy(logits, y)
        self.mixed.backward(loss)
        gradients = {canonical_name(name): self.mixed.gradient(p) for name, p in self.network.named_parameters()}
        return logits.detach().float().cpu().numpy(), loss.item(), gradients

    def masks(self):
        return None if self.replayed else random_state(self.device)

    def redraw(self, masks):
        set_random_state(self.device, masks)

    def step(self, x, y):
        return self.run(x, y)

    def _step(self, x, y):
        self.network.train(self.dropout)
        self.optimizer.zero_grad()
        with self.mixed.forward():
            # The loss takes logits: there is exactly one softmax.
            loss = F.cross_entropy(self.compiled(x), y)
        self.mixed.backward(loss)
        self.mixed.update()
        return loss

    def skipped(self):
        return self.mixed.skipped()

    def value(self, loss):
        return loss.item()

    # No gradients in evaluation: they cost memory and time.
    @torch.no_grad()
    def predict(self, x):
        self.network.eval()
        with self.mixed.forward():
            return self.compiled(torch.from_numpy(x).to(self.device)).float().cpu().numpy()


def torch_name(name):
    layer, kind = name.split(".")
    return layer + {"w": ".weight", "b": ".bias"}[kind]


def canonical_name(name):
    return name.replace(".weight", ".w").replace(".bias", ".b")
