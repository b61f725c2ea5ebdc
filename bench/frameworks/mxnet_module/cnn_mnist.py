"""The MNIST convolution network in MXNet's Module: a Symbol, bound to shapes and a device, Adam, batches in file order.

Idiomatic here: the Module owns the bound executor, its memory and its optimiser, so the loop is forward_backward and update; nothing in it
asks for a value (B6), so the engine runs ahead. SoftmaxOutput is softmax and its cross-entropy's gradient in one (A7).
"""

import mxnet as mx

from bench.frameworks.mxnet._pool import max_pool
from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_module._module import Resident
from bench.workloads.cnn_mnist import BATCH


def symbol(on_gpu):
    """Images (N, 1, 28, 28) -> logits (N, 10)."""
    sym = mx.sym
    x = sym.Convolution(sym.Variable("data"), num_filter=16, kernel=(2, 2), name="conv1")
    x = sym.relu(max_pool(sym, x, on_gpu, odd=True))  # A11: the same function on a quarter of the data
    x = sym.Convolution(x, num_filter=8, kernel=(2, 2), name="conv2")
    x = sym.relu(max_pool(sym, x, on_gpu))
    return sym.FullyConnected(x, num_hidden=10, name="dense")  # flattens, in C, H, W order


class Training(Resident):
    NAMES = {
        layer + short: layer + own
        for layer in ("conv1", "conv2", "dense")
        for short, own in ((".w", "_weight"), (".b", "_bias"))
    }

    def __init__(self, setup):
        mx.random.seed(setup.seed)
        where = context(setup)
        super(Training, self).__init__(where, symbol(where.device_type == "gpu"), (BATCH, 1, 28, 28), "float32")
