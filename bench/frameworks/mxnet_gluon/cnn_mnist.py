"""The MNIST convolution network in Gluon: a HybridSequential, a Trainer, batches in file order.

Idiomatic here: hybridize(static_alloc, static_shape) turns the blocks into one graph and plans its memory once. No value goes back to
the host inside the loop, so MXNet's engine runs ahead of Python. The pooling leaves out an odd last row and column.
"""

from mxnet.gluon import nn

from bench.frameworks.mxnet_gluon._mnist import Trained


class Training(Trained):
    def __init__(self, setup):
        conv1, conv2 = nn.Conv2D(16, 2, in_channels=1), nn.Conv2D(8, 2, in_channels=16)
        dense = nn.Dense(10, in_units=288)
        network = nn.HybridSequential()
        # ReLU after the pooling: the same values, a quarter of the work. Dense flattens its input, in C, H, W order.
        network.add(
            *(conv1, nn.MaxPool2D(2, strides=2), nn.Activation("relu")),
            *(conv2, nn.MaxPool2D(2, strides=2), nn.Activation("relu")),
            dense,
        )
        super().__init__(setup, network, {"conv1": conv1, "conv2": conv2, "dense": dense})
