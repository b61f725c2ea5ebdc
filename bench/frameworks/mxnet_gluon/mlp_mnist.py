"""The MNIST perceptron in Gluon: a HybridSequential of two Dense layers, a Trainer, the whole set as one batch.

Idiomatic here: Dense flattens its input and keeps its weight as (out, in), the specification's own form.
hybridize(static_alloc, static_shape) turns the blocks into one graph and plans its memory once.
"""

from mxnet.gluon import nn

from bench.frameworks.mxnet_gluon._mnist import Trained


class Training(Trained):
    def __init__(self, setup):
        dense1, dense2 = nn.Dense(32, in_units=784), nn.Dense(10, in_units=32)
        network = nn.HybridSequential()
        network.add(dense1, nn.Activation("relu"), dense2)
        super().__init__(setup, network, {"dense1": dense1, "dense2": dense2})
