"""The MNIST convolution network in Chainer: a Chain, functions on variables, Adam, batches in file order.

Idiomatic here: max_pooling_2d rounds up unless it is told not to (cover_all); Linear flattens, in C, H, W order.
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
        x = F.relu(half(self.conv1(x)))  # A11: after the pool it is the same function on a quarter of the data
        x = F.relu(half(self.conv2(x)))
        return self.dense(x)


def half(x):
    return F.max_pooling_2d(x, 2, 2, cover_all=False)  # A14: the stride is said


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network())
