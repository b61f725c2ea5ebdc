"""The MNIST convolution network in PaddlePaddle: a Layer, Adam, batches in file order.

Idiomatic here: max_pool2d leaves out an odd last row and column. Linear keeps its weight as (in, out).
"""

import paddle
import paddle.nn.functional as F
from paddle import nn

from bench.frameworks.paddle._loop import Resident

LAYERS = ("conv1", "conv2", "dense")


class Network(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2D(1, 16, 2), nn.Conv2D(16, 8, 2)
        self.dense = nn.Linear(288, 10)

    def forward(self, x):
        # ReLU after the pooling: the same values, a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        # The inputs of the dense layer are in C, H, W order.
        return self.dense(paddle.flatten(x, 1))


class Training(Resident):
    NAMES = {name + ".w": (name + ".weight", name == "dense") for name in LAYERS}
    NAMES.update((name + ".b", (name + ".bias", False)) for name in LAYERS)

    def __init__(self, setup):
        paddle.seed(setup.seed)
        super().__init__(setup, Network())
