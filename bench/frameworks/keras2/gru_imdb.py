"""The IMDB network in Keras 2: Embedding, GRU, Dense, Adam; the same file on Theano and CNTK.

Idiomatic here: with reset_after the reset gate comes after the recurrent product, as in cuDNN. Both biases lie in one (2, 300) array,
with gates z, r, n. The layer is a loop in the graph, not cuDNN's fused GRU. Implementation 2 takes the products of the three gates as
one, which is faster in Theano; in CNTK the slices of that product cost more than it saves.
"""

import numpy as np
from keras import backend, layers, models

from bench.frameworks.keras2._adam import ExactAdam
from bench.frameworks.keras2._loop import Trained


def network():
    implementation = 1 if backend.backend() == "cntk" else 2
    return models.Sequential(
        [
            layers.Embedding(30000, 125, input_length=150),
            # The first state is zero and not trained. The output of the last position.
            layers.GRU(100, recurrent_activation="sigmoid", reset_after=True, implementation=implementation),
            layers.Dense(2),
        ]
    )


def swap_gates(w):
    """Exchange the gates r and z, stacked along the first axis: canonical r, z, n <-> Keras z, r, n."""
    r, z, n = np.split(w, 3)
    return np.concatenate([z, r, n])


class Training(Trained):
    def __init__(self, setup):
        # Adam's constants are explicit: defaults differ among frameworks. Keras' epsilon is 1e-7.
        adam = ExactAdam(lr=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8)
        super(Training, self).__init__(setup, network(), adam)

    def to_own(self, parameters):
        p = parameters
        biases = np.stack([swap_gates(p["gru.b"]), swap_gates(p["gru.c"])])
        kernels = swap_gates(p["gru.w"]).T, swap_gates(p["gru.u"]).T
        return [p["embedding"], kernels[0], kernels[1], biases, p["dense.w"].T, p["dense.b"]]

    def canonical(self, values):
        embedding, kernel, recurrent, biases, dense, bias = values
        return {
            "embedding": embedding,
            "gru.w": swap_gates(kernel.T),
            "gru.b": swap_gates(biases[0]),
            "gru.u": swap_gates(recurrent.T),
            "gru.c": swap_gates(biases[1]),
            "dense.w": dense.T,
            "dense.b": bias,
        }
