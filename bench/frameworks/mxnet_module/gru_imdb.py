"""The IMDB network in MXNet's Module: Embedding, the fused RNN operator and FullyConnected in one Symbol, Adam.

Idiomatic here: sym.RNN is the operator under rnn.FusedRNNCell, cuDNN's fused kernel on a GPU. Its gates are stacked r, z, n with two
biases, the specification's own form: the reset gate is applied after the product. It takes time first and all its parameters as one
vector: input weights, recurrent weights, input biases, recurrent biases.
"""

import mxnet as mx
import numpy as np

import bench.frameworks.mxnet._adam  # noqa: F401  (registers "exactadam")
from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_module._module import BATCH, Trained

# The operator's parameters, in its order.
GRU = (("gru.w", (300, 125)), ("gru.u", (300, 100)), ("gru.b", (300,)), ("gru.c", (300,)))


def symbol():
    """Token ids (64, 150) -> logits (64, 2)."""
    sym = mx.sym
    x = sym.Embedding(sym.Variable("data"), input_dim=30000, output_dim=125, name="embedding")
    # The first state is zero and not trained.
    start = sym.zeros((1, BATCH, 100))
    states = sym.RNN(sym.swapaxes(x, 0, 1), sym.Variable("gru"), start, mode="gru", state_size=100, num_layers=1)
    # The output of the last position.
    last = sym.reshape(sym.slice_axis(states, axis=0, begin=-1, end=None), (BATCH, 100))
    return sym.FullyConnected(last, num_hidden=2, name="dense")


class Training(Trained):
    NAMES = {"embedding": "embedding_weight", "gru": "gru", "dense.w": "dense_weight", "dense.b": "dense_bias"}
    # Adam's constants are explicit: defaults differ among frameworks.
    OPTIMIZER = (
        "exactadam",
        {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "rescale_grad": 1.0 / BATCH},
    )

    def __init__(self, setup):
        mx.random.seed(setup.seed)
        super(Training, self).__init__(context(setup), symbol(), (BATCH, 150), "int32")

    def load(self, parameters):
        own = {name: parameters[name] for name in ("embedding", "dense.w", "dense.b")}
        own["gru"] = np.concatenate([parameters[name].ravel() for name, _ in GRU])
        super(Training, self).load(own)

    def canonical(self, own):
        tensors = super(Training, self).canonical(own)
        packed, begin = tensors.pop("gru"), 0
        for name, shape in GRU:
            end = begin + int(np.prod(shape))
            tensors[name] = packed[begin:end].reshape(shape)
            begin = end
        return tensors
