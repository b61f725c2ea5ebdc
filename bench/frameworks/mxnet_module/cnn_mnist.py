"""The MNIST convolution network in MXNet's Module: a Symbol, bound to shapes and a device, Adam, batches in file order.

Idiomatic here: the Module owns the bound executor, its memory and its optimiser, so the loop is forward_backward and update. No value goes
back to the host inside the loop, so MXNet's engine runs ahead of Python. The pooling leaves out an odd last row and column.
"""

import mxnet as mx

from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_module._module import Resident, layer_names
from bench.workloads.cnn_mnist import BATCH


def symbol():
    """Images (N, 1, 28, 28) -> logits (N, 10)."""
    sym = mx.sym

    # Stride and padding are explicit: defaults differ among frameworks.
    def pool(x):
        return sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")

    # Activation computes in the layout that oneDNN's layers hand on. sym.relu would have it converted, there and back.
    def relu(x):
        return sym.Activation(x, act_type="relu")

    x = sym.Convolution(sym.Variable("data"), num_filter=16, kernel=(2, 2), name="conv1")
    # ReLU after the pooling: the same values, a quarter of the work.
    x = relu(pool(x))
    x = sym.Convolution(x, num_filter=8, kernel=(2, 2), name="conv2")
    x = relu(pool(x))
    # FullyConnected flattens its input, in C, H, W order.
    return sym.FullyConnected(x, num_hidden=10, name="dense")


class Training(Resident):
    NAMES = layer_names("conv1", "conv2", "dense")

    def __init__(self, setup):
        mx.random.seed(setup.seed)
        super(Training, self).__init__(context(setup), symbol(), (BATCH, 1, 28, 28), "float32")
