"""ResNet-50 trained in PyTorch: the features' network with torchvision's classifier, SGD with momentum and weight decay.

Idiomatic here: BatchNorm2d's defaults are the specification's: epsilon 1e-5, a step of 0.1, an unbiased running variance. Each of several
processes keeps its own statistics: DistributedDataParallel shares none without broadcast_buffers. Pictures lie in memory as
the device's convolutions want them (memory_format).
"""

import torch
import torch.nn.functional as F
from torch import nn

from bench.frameworks.torch import resnet50_features
from bench.frameworks.torch._pictures import Trained


class Network(resnet50_features.Network):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        return self.fc(super().forward(x))


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network())
        # Momentum: v = m v + g + 1e-4 w; w = w - rate v, without dampening or Nesterov.
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.0125, momentum=0.9, weight_decay=1e-4)

    def inputs(self, x, y):
        x, y = super().inputs(x, y)
        return x, y.astype("int64")

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one softmax.
        return F.cross_entropy(logits, y)
