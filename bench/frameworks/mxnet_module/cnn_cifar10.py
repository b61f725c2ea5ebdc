"""The CIFAR-10 network in MXNet's Module: a Symbol, bound once to shapes and a device.

Idiomatic here: the Module owns the bound executor, its memory and its optimiser (init_optimizer), so the loop is forward_backward
and update. No value goes back to the host inside the loop, so MXNet's engine runs ahead of Python.
"""

import mxnet as mx

from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_module._module import BATCH, Trained, layer_names


def symbol(dropout):
    """Images (64, 3, 32, 32) -> logits (64, 10)."""
    sym = mx.sym

    # Stride and padding are explicit: defaults differ among frameworks.
    def conv(x, filters, name):
        return sym.Convolution(x, num_filter=filters, kernel=(3, 3), pad=(1, 1), name=name)

    def pool(x):
        return sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")

    # Activation computes in the layout that oneDNN's layers hand on. sym.relu would have it converted, there and back.
    def relu(x):
        return sym.Activation(x, act_type="relu")

    # Dropout only in training. Module has one switch for training and gradients, so the parity check leaves the layer out.
    def drop(x, rate):
        return sym.Dropout(x, p=rate) if dropout else x

    x = sym.Variable("data")
    x = relu(conv(x, 50, "conv1"))
    # ReLU after the pooling: the same values, a quarter of the work.
    x = drop(relu(pool(conv(x, 50, "conv2"))), 0.25)
    x = relu(conv(x, 100, "conv3"))
    x = drop(relu(pool(conv(x, 100, "conv4"))), 0.25)
    # FullyConnected flattens its input, in C, H, W order.
    x = drop(relu(sym.FullyConnected(x, num_hidden=512, name="dense1")), 0.5)
    return sym.FullyConnected(x, num_hidden=10, name="dense2")


class Training(Trained):
    NAMES = layer_names("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")
    # Momentum: v = m v - rate g; w = w + v, without dampening or Nesterov.
    # At a constant rate this is the specification's v = m v + g; w = w - rate v.
    OPTIMIZER = ("sgd", {"learning_rate": 0.01, "momentum": 0.9, "wd": 0.0, "rescale_grad": 1.0 / BATCH})

    def __init__(self, setup):
        mx.random.seed(setup.seed)
        super(Training, self).__init__(context(setup), symbol(setup.training), (BATCH, 3, 32, 32), "float32")
