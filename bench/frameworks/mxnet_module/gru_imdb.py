"""The IMDB network in MXNet's Module: Embedding, the fused RNN operator and FullyConnected in one Symbol, Adam.

Idiomatic here: sym.RNN is the operator under rnn.FusedRNNCell, cuDNN's on a GPU (C1), with gates stacked r, z, n and two
biases, which is the specification's own form. It takes time first (C3) and all its parameters as one vector: input weights, recurrent
weights, input biases, recurrent biases.
"""

import mxnet as mx
import numpy as np

import bench.frameworks.mxnet._adam  # noqa: F401  (registers "exactadam")
from bench.frameworks.mxnet.framework import context
from bench.frameworks.mxnet_module._module import BATCH, Trained

# In the order in which the operator keeps them.
GRU = (("gru.w", (300, 125)), ("gru.u", (300, 100)), ("gru.b", (300,)), ("gru.c", (300,)))


def symbol():
    """Token ids (64, 150) -> logits (64, 2)."""
    sym = mx.sym
    x = sym.Embedding(sym.Variable("data"), input_dim=30000, output_dim=125, name="embedding")
    start = sym.zeros((1, BATCH, 100))  # C6
    states = sym.RNN(sym.swapaxes(x, 0, 1), sym.Variable("gru"), start, mode="gru", state_size=100, num_layers=1)
    last = sym.reshape(sym.slice_axis(states, axis=0, begin=-1, end=None), (BATCH, 100))  # C5: position 150
    return sym.FullyConnected(last, num_hidden=2, name="dense")


class Training(Trained):
    NAMES = {"embedding": "embedding_weight", "gru": "gru", "dense.w": "dense_weight", "dense.b": "dense_bias"}
    # C9: every constant set
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
        found = super(Training, self).canonical(own)
        packed, begin = found.pop("gru"), 0
        for name, shape in GRU:
            end = begin + int(np.prod(shape))
            found[name] = packed[begin:end].reshape(shape)
            begin = end
        return found
