"""The MNIST perceptron in MXNet's Module: a Symbol, bound to shapes and a device, Adam, the whole set as one batch.

Idiomatic here: FullyConnected flattens its input and keeps its weight as (out, in), the specification's own form.
"""

import mxnet as mx

from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_module._module import Resident, layer_names
from bench.workloads.mlp_mnist import BATCH


def symbol():
    """Images (N, 1, 28, 28) -> logits (N, 10)."""
    x = mx.sym.relu(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=32, name="dense1"))
    return mx.sym.FullyConnected(x, num_hidden=10, name="dense2")


class Training(Resident):
    NAMES = layer_names("dense1", "dense2")

    def __init__(self, setup):
        mx.random.seed(setup.seed)
        super(Training, self).__init__(context(setup), symbol(), (BATCH, 1, 28, 28), "float32")
