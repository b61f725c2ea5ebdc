"""The MNIST perceptron in MXNet's Module: a Symbol, bound to shapes and a device, Adam, the whole set as one batch.

Idiomatic here: FullyConnected flattens what it is given, and keeps its weight as (out, in), the specification's own form. SoftmaxOutput is
softmax and its cross-entropy's gradient in one (A7).
"""

import mxnet as mx

from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_module._module import Resident
from bench.workloads.mlp_mnist import BATCH


def symbol():
    """Images (N, 1, 28, 28) -> logits (N, 10)."""
    x = mx.sym.relu(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=32, name="dense1"))
    return mx.sym.FullyConnected(x, num_hidden=10, name="dense2")


class Training(Resident):
    NAMES = {
        layer + short: layer + own
        for layer in ("dense1", "dense2")
        for short, own in ((".w", "_weight"), (".b", "_bias"))
    }

    def __init__(self, setup):
        mx.random.seed(setup.seed)
        super(Training, self).__init__(context(setup), symbol(), (BATCH, 1, 28, 28), "float32")
