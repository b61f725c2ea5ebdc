"""The CIFAR-10 network in MindSpore: a Cell, value_and_grad, Momentum, the step compiled as one graph.

Idiomatic here: value_and_grad differentiates a function; there is no tape. The optimiser is a Cell, which the compiled step calls with
the gradients.
"""

import os

# MindSpore 2.10.0 is built with oneDNN 3.10.1. On CPUs with AVX-512 that computes convolutions in N, C, H, W with its reference code
# (ONEDNN_VERBOSE=1: jit_uni_ncsp:conv+ref:any): a step takes 15.6 s. With AVX2's kernels it takes 0.6 to 0.9 s (measured, two threads).
# oneDNN reads this variable when it makes its first primitive.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

from mindspore import mint, nn  # noqa: E402

from bench.frameworks.mindspore._loop import Trained  # noqa: E402

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


# Padding is explicit: defaults differ among frameworks.
def conv(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, pad_mode="pad", padding=1, has_bias=True)


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3, self.conv4 = conv(3, 50), conv(50, 50), conv(50, 100), conv(100, 100)
        self.pool, self.relu = nn.MaxPool2d(2, 2), nn.ReLU()
        self.dense1, self.dense2 = nn.Dense(6400, 512), nn.Dense(512, 10)
        self.dropout1, self.dropout2, self.dropout3 = nn.Dropout(p=0.25), nn.Dropout(p=0.25), nn.Dropout(p=0.5)

    def construct(self, x):
        x = self.relu(self.conv1(x))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = self.dropout1(self.relu(self.pool(self.conv2(x))))
        x = self.relu(self.conv3(x))
        x = self.dropout2(self.relu(self.pool(self.conv4(x))))
        # Flattened in C, H, W order.
        x = self.dropout3(self.relu(self.dense1(mint.flatten(x, 1))))
        return self.dense2(x)


class Training(Trained):
    NAMES = {name + end: name + own for name in LAYERS for end, own in ((".w", ".weight"), (".b", ".bias"))}

    def __init__(self, setup):
        super().__init__(setup, Network())

    def new_optimizer(self, parameters):
        # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov.
        return nn.Momentum(parameters, learning_rate=0.01, momentum=0.9)
