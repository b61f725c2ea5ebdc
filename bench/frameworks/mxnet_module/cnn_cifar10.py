"""The CIFAR-10 network in MXNet's Module: a Symbol, bound once to shapes and a device.

Idiomatic here: the Module owns the bound executor, its memory and its optimiser (init_optimizer), so the loop is forward_backward
and update; nothing in it asks for a value (B6), so the engine runs ahead. SoftmaxOutput is softmax and its cross-entropy's
gradient in one (A7).
"""

import mxnet as mx

from bench.frameworks.mxnet._pool import max_pool
from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_module._module import BATCH, Trained


def symbol(on_gpu, dropout):
    """Images (64, 3, 32, 32) -> logits (64, 10)."""
    sym = mx.sym

    def conv(x, filters, name):
        return sym.Convolution(x, num_filter=filters, kernel=(3, 3), pad=(1, 1), name=name)

    def drop(x, rate):  # Module has one switch for training and gradients; without dropout the layer is left out
        return sym.Dropout(x, p=rate) if dropout else x

    x = sym.Variable("data")
    x = sym.relu(conv(x, 50, "conv1"))
    x = drop(sym.relu(max_pool(sym, conv(x, 50, "conv2"), on_gpu)), 0.25)
    x = sym.relu(conv(x, 100, "conv3"))
    x = drop(sym.relu(max_pool(sym, conv(x, 100, "conv4"), on_gpu)), 0.25)
    x = drop(sym.relu(sym.FullyConnected(x, num_hidden=512, name="dense1")), 0.5)  # flattens, in C, H, W order
    return sym.FullyConnected(x, num_hidden=10, name="dense2")


class Training(Trained):
    NAMES = {
        layer + short: layer + own
        for layer in ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")
        for short, own in ((".w", "_weight"), (".b", "_bias"))
    }
    # A10: MXNet's momentum is v <- 0.9 v - lr g, w <- w + v: the specification's, with v scaled by the constant rate.
    OPTIMIZER = ("sgd", {"learning_rate": 0.01, "momentum": 0.9, "wd": 0.0, "rescale_grad": 1.0 / BATCH})

    def __init__(self, setup):
        mx.random.seed(setup.seed)
        where = context(setup)
        super(Training, self).__init__(
            where, symbol(where.device_type == "gpu", setup.training), (BATCH, 3, 32, 32), "float32"
        )
