"""The MNIST convolution network in PyTorch: a Module, Adam, batches in file order.

Idiomatic here: channels first, as torch and cuDNN store images; max_pool2d rounds down, so that an odd last row and column are left out.
"""

import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch._mnist import Trained


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 2)
        self.conv2 = nn.Conv2d(16, 8, 2)
        self.dense = nn.Linear(288, 10)

    def forward(self, x):
        x = F.relu(
            F.max_pool2d(self.conv1(x), 2)
        )  # A11: ReLU after the pool is the same function on a quarter of the data
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.dense(x.flatten(1))  # in C, H, W order


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network())
