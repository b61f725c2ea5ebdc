"""The MNIST convolution network in Gluon: a HybridSequential, a Trainer, batches in file order.

Idiomatic here: hybridize(static_alloc, static_shape) turns the blocks into one graph with its memory planned once (B8); nothing in the
loop asks for a value (B6), so the engine runs ahead. Pooling rounds down, so that an odd last row and column are left out.
"""

from mxnet.gluon import nn

from bench.frameworks.mxnet._pool import MaxPool
from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_gluon._mnist import Trained


class Training(Trained):
    def __init__(self, setup):
        conv1, conv2 = nn.Conv2D(16, 2, in_channels=1), nn.Conv2D(8, 2, in_channels=16)
        dense = nn.Dense(10, in_units=288)
        network = nn.HybridSequential()
        network.add(
            *(conv1, MaxPool(context(setup), odd=True), nn.Activation("relu")),  # A11: ReLU on a quarter of the data
            *(conv2, MaxPool(context(setup)), nn.Activation("relu")),
            dense,  # flattens, in C, H, W order
        )
        super().__init__(setup, network, {"conv1": conv1, "conv2": conv2, "dense": dense})
