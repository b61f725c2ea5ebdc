"""The IMDB network in Lasagne: EmbeddingLayer, GRULayer, DenseLayer, Adam.

Idiomatic here: GRULayer takes the product with the input for all positions before its scan, and returns all states. It is not cuDNN's
fused GRU. Its update gate says how much to forget, others' says how much to keep: h = (1 - u) h + u n, so u = 1 - z, and the gate's
weights change sign.
"""

import numpy as np
import theano
import theano.tensor as T
from lasagne import layers
from lasagne.nonlinearities import identity

from bench.frameworks.lasagne._loop import Trained

GATES = ("resetgate", "updategate", "hidden_update")
SIGNS = (1, -1, 1) * 3


class Training(Trained):
    VARIANT = "one-bias"
    VARIANT_REASON = "Lasagne's GRULayer adds one bias to each gate, before the recurrent product"

    def __init__(self, setup):
        x = T.imatrix("x")
        words = layers.EmbeddingLayer(layers.InputLayer((64, 150), x), 30000, 125)
        # The first state is zero and not trained.
        gru = layers.GRULayer(words, 100, learn_init=False)
        # The output of the last position.
        dense = layers.DenseLayer(layers.SliceLayer(gru, -1, axis=1), 2, nonlinearity=identity)
        # Gates r, z, n of the input's weights, of the state's weights, of the biases.
        own = [getattr(gru, name % gate) for name in ("W_in_to_%s", "W_hid_to_%s", "b_%s") for gate in GATES]
        super(Training, self).__init__(setup, x, dense, own + [words.W, dense.W, dense.b])

    def new_values(self, gradients, parameters):
        """Adam as in the paper's algorithm 1: Lasagne's own adds epsilon to the uncorrected root."""
        # Adam's constants are explicit: defaults differ among frameworks.
        self.t = theano.shared(np.float32(0))
        step = self.t + np.float32(1)
        # 1 - beta^step by expm1: the subtraction would cost float32 four digits in the first steps.
        correct1, correct2 = (-T.expm1(step * np.float32(np.log(beta))) for beta in (0.9, 0.999))
        new = {self.t: step}
        for parameter, gradient in zip(parameters, gradients):
            m, v = (theano.shared(np.zeros_like(parameter.get_value())) for _ in range(2))
            new[m] = np.float32(0.9) * m + np.float32(0.1) * gradient
            new[v] = np.float32(0.999) * v + np.float32(0.001) * T.sqr(gradient)
            root = T.sqrt(new[v] / correct2) + np.float32(1e-8)
            new[parameter] = parameter - np.float32(0.001) * (new[m] / correct1) / root
        return new

    def updates(self):
        return int(self.t.get_value())

    def to_own(self, parameters):
        parts = [gate for name in ("gru.w", "gru.u", "gru.b") for gate in np.split(parameters[name], 3)]
        own = [sign * part.T for sign, part in zip(SIGNS, parts)]
        return own + [parameters["embedding"], parameters["dense.w"].T, parameters["dense.b"]]

    def canonical(self, values):
        parts = [sign * np.asarray(part).T for sign, part in zip(SIGNS, values)]
        return {
            "gru.w": np.concatenate(parts[0:3]),
            "gru.u": np.concatenate(parts[3:6]),
            "gru.b": np.concatenate(parts[6:9]),
            "embedding": values[9],
            "dense.w": values[10].T,
            "dense.b": values[11],
        }
