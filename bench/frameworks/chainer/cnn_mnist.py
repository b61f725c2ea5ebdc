"""The MNIST convolution network in Chainer: a Chain, functions on variables, Adam, batches in file order.

Idiomatic here: max_pooling_2d rounds the output's size up unless cover_all is False. Linear flattens its input, in C, H, W order.
"""

import chainer
import chainer.functions as F
import chainer.links as L

from bench.frameworks.chainer._mnist import Trained


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1, self.conv2 = L.Convolution2D(1, 16, 2), L.Convolution2D(16, 8, 2)
            self.dense = L.Linear(288, 10)

    def forward(self, x):
        # ReLU after the pooling: the same values, a quarter of the work.
        x = F.relu(half(self.conv1(x)))
        x = F.relu(half(self.conv2(x)))
        return self.dense(x)


def half(x):
    # The stride is explicit: defaults differ among frameworks. An odd last row and column are left out.
    return F.max_pooling_2d(x, 2, 2, cover_all=False)


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network())
