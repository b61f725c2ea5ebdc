"""The MNIST convolution network in PyTorch: a Module, Adam, batches in file order.

Idiomatic here: pictures lie in memory as the device's convolutions want them (memory_format), and are seen as (N, C, H, W). max_pool2d
leaves out an odd last row and column.
"""

import torch
import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch._mnist import Trained
from bench.frameworks.torch.framework import memory_format


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 2)
        self.conv2 = nn.Conv2d(16, 8, 2)
        self.dense = nn.Linear(288, 10)

    def forward(self, x):
        # ReLU after the pooling: the same values, a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        # The inputs of the dense layer are in C, H, W order.
        return self.dense(x.flatten(1))


class Training(Trained):
    def __init__(self, setup):
        self.format = memory_format(setup)
        super().__init__(setup, Network().to(memory_format=self.format))

    def inputs(self, x, y):
        if self.format == torch.channels_last:
            # With one channel the memory is the same in both layouts. The strides say that it is channels last.
            x = x.reshape(len(x), 28, 28, 1).transpose(0, 3, 1, 2)
        return super().inputs(x, y)
