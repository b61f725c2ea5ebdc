"""ResNet-50 trained in PyTorch: the features' network with torchvision's classifier, SGD with momentum and weight decay.

Idiomatic here: BatchNorm2d's defaults are the specification's (epsilon 1e-5, a step of 0.1, the running variance unbiased), and of several
processes each keeps its own statistics, as DistributedDataParallel leaves them without broadcast_buffers; SGD's weight decay is added
to the gradient; channels-last tensors are what cuDNN's and oneDNN's convolutions take without reordering (PyTorch's channels-last
tutorial); pinned memory lets the copy to a GPU overlap the host's work.
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
        # A10: v <- 0.9 v + (g + 1e-4 w), w <- w - lr v: dampening and Nesterov are off, and the rate is outside v
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.0125, momentum=0.9, weight_decay=1e-4)

    def inputs(self, x, y):
        x, y = super().inputs(x, y)
        return x, y.astype("int64")

    def loss(self, logits, y):
        return F.cross_entropy(logits, y)
