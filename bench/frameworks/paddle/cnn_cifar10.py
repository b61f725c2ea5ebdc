"""The CIFAR-10 network in PaddlePaddle: a Layer, cross_entropy on logits, Momentum.

Idiomatic here: paddle.nn's Linear keeps its weight as (in, out). No value goes back to the host inside the loop.
"""

import paddle
import paddle.nn.functional as F
from paddle import nn

from bench.frameworks.paddle._loop import Trained

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


class Network(nn.Layer):
    def __init__(self, dropout):
        super().__init__()
        # Dropout only in training.
        rates = (0.25, 0.25, 0.5) if dropout else (0.0, 0.0, 0.0)
        self.conv1, self.conv2 = nn.Conv2D(3, 50, 3, padding=1), nn.Conv2D(50, 50, 3, padding=1)
        self.conv3, self.conv4 = nn.Conv2D(50, 100, 3, padding=1), nn.Conv2D(100, 100, 3, padding=1)
        self.dense1, self.dense2 = nn.Linear(6400, 512), nn.Linear(512, 10)
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(rate) for rate in rates)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = self.dropout1(F.relu(F.max_pool2d(self.conv2(x), 2)))
        x = F.relu(self.conv3(x))
        x = self.dropout2(F.relu(F.max_pool2d(self.conv4(x), 2)))
        # The inputs of dense1 are in C, H, W order.
        x = self.dropout3(F.relu(self.dense1(paddle.flatten(x, 1))))
        return self.dense2(x)


class Training(Trained):
    NAMES = {name + ".w": (name + ".weight", name.startswith("dense")) for name in LAYERS}
    NAMES.update((name + ".b", (name + ".bias", False)) for name in LAYERS)

    def __init__(self, setup):
        paddle.seed(setup.seed)
        super().__init__(setup, Network(setup.training))

    def new_optimizer(self, parameters):
        # Momentum: v = m v + g; w = w - rate v, without dampening or Nesterov.
        return paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9, parameters=parameters)
