"""The MNIST convolution network in PyTorch: a Module, Adam, batches in file order.

Idiomatic here: the convolutions of cuDNN and oneDNN take channels-last tensors without reordering (PyTorch's tutorial on channels last); a
tensor is still seen as (N, C, H, W). max_pool2d leaves out an odd last row and column.
"""

import torch
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
        # ReLU after the pooling: the same values, a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        # The inputs of the dense layer are in C, H, W order.
        return self.dense(x.flatten(1))


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network().to(memory_format=torch.channels_last))

    def inputs(self, x, y):
        # With one channel the memory is the same in both layouts. The strides say that it is channels last.
        return super().inputs(x.reshape(len(x), 28, 28, 1).transpose(0, 3, 1, 2), y)
