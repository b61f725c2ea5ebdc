"""DenseNet-121 in PyTorch: the modules of torchvision's network under the same names, with 14 findings to classify.

Idiomatic here: BatchNorm2d's defaults are the specification's: epsilon 1e-5, a step of 0.1, an unbiased running variance. Each of several
processes keeps its own statistics: DistributedDataParallel shares none without broadcast_buffers. Pictures lie in memory as
the device's convolutions want them (memory_format).
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch._mixed import updates
from bench.frameworks.torch._pictures import Trained
from bench.frameworks.torch.framework import adam

LAYERS = (6, 12, 24, 16)
GROWTH = 32


class DenseLayer(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * GROWTH)
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        new = self.conv1(self.relu(self.norm1(x)))
        new = self.conv2(self.relu(self.norm2(new)))
        return torch.cat([x, new], 1)


def dense_block(inputs, count):
    layers = [("denselayer%d" % (index + 1), DenseLayer(inputs + index * GROWTH)) for index in range(count)]
    return nn.Sequential(OrderedDict(layers))


def transition(inputs):
    parts = [
        ("norm", nn.BatchNorm2d(inputs)),
        ("relu", nn.ReLU(inplace=True)),
        ("conv", nn.Conv2d(inputs, inputs // 2, 1, bias=False)),
        ("pool", nn.AvgPool2d(2)),
    ]
    return nn.Sequential(OrderedDict(parts))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential()
        self.features.add_module("conv0", nn.Conv2d(3, 64, 7, 2, padding=3, bias=False))
        self.features.add_module("norm0", nn.BatchNorm2d(64))
        self.features.add_module("relu0", nn.ReLU(inplace=True))
        self.features.add_module("pool0", nn.MaxPool2d(3, 2, padding=1))
        channels = 64
        for block, count in enumerate(LAYERS, 1):
            self.features.add_module("denseblock%d" % block, dense_block(channels, count))
            channels += count * GROWTH
            if block < len(LAYERS):
                self.features.add_module("transition%d" % block, transition(channels))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, 14)

    def forward(self, x):
        return self.classifier(F.relu(self.features(x)).mean((2, 3)))


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network())
        self.optimizer = adam(setup, self.network, 1e-4)

    def updates(self):
        return updates(self.optimizer)

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one sigmoid.
        return F.binary_cross_entropy_with_logits(logits, y)
