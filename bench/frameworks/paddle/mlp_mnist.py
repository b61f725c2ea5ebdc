"""The MNIST perceptron in PaddlePaddle: a Layer of two Linear layers, Adam, the whole set as one batch.

Idiomatic here: Linear keeps its weight as (in, out). Every step takes the same tensor on the device: nothing is copied.
"""

import paddle
import paddle.nn.functional as F
from paddle import nn

from bench.frameworks.paddle._loop import Resident


class Network(nn.Layer):
    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(784, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.dense2(F.relu(self.dense1(paddle.flatten(x, 1))))


class Training(Resident):
    NAMES = {name + ".w": (name + ".weight", True) for name in ("dense1", "dense2")}
    NAMES.update((name + ".b", (name + ".bias", False)) for name in ("dense1", "dense2"))

    def __init__(self, setup):
        paddle.seed(setup.seed)
        super().__init__(setup, Network())
