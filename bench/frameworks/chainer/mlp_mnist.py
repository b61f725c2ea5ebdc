"""The MNIST perceptron in Chainer: a Chain of two Linear links, Adam, the whole set as one batch.

Idiomatic here: Linear flattens its input, and keeps its weight as (out, in), as in the specification.
"""

import chainer
import chainer.functions as F
import chainer.links as L

from bench.frameworks.chainer._mnist import Trained


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.dense1, self.dense2 = L.Linear(784, 32), L.Linear(32, 10)

    def forward(self, x):
        return self.dense2(F.relu(self.dense1(x)))


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, Network())
