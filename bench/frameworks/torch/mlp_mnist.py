"""The MNIST perceptron in PyTorch: a Module of two Linear layers, Adam, the whole set as one batch.

Idiomatic here: Linear keeps its weight as (out, in), the specification's own form. Every step takes the same tensor on the device:
nothing is copied.
"""

import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch._mnist import Trained


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense1 = nn.Linear(784, 32)
        self.dense2 = nn.Linear(32, 10)

    def forward(self, x):
        return self.dense2(F.relu(self.dense1(x.flatten(1))))


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network())
