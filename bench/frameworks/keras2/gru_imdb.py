"""The IMDB network in Keras 2: Embedding, GRU, Dense, Adam; the same file on Theano and CNTK.

Idiomatic here: reset_after gives GRU cuDNN's convention (C8) with both biases in one (2, 300) array, gates z, r, n. Implementation 2
takes the products of the three gates in one, which Theano gains by; in CNTK the slices that part them again cost more than that saves.
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
            # C6: it starts from zero; C5: it returns the last state
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
        # C9: every constant set; Keras' epsilon would be 1e-7
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
