"""The MNIST convolution network in PyTorch: a Module, Adam, batches in file order.

Idiomatic here: images are channels first, the layout that cuDNN computes in. max_pool2d leaves out an odd last row and column.
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
        # ReLU after the pooling: the same values, a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        # The inputs of the dense layer are in C, H, W order.
        return self.dense(x.flatten(1))


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network())
