"""The IMDB network in Keras 3: Embedding, GRU, Dense and Adam; the same file on every backend.

Idiomatic here: layers.GRU with its defaults is cuDNN's fused GRU on TensorFlow and PyTorch with a GPU, and a loop in the graph elsewhere.
On TensorFlow with a CPU XLA compiles the step, which takes three quarters of the time that it takes without.
Keras stacks the gates z, r, n and keeps both biases in one (2, 300) array.
"""

import keras
import numpy as np
from keras import layers

from bench.frameworks.keras import _mixed
from bench.frameworks.keras._adam import Adam
from bench.frameworks.keras._trained import Trained


def network():
    return keras.Sequential(
        [
            keras.Input((150,), dtype="int32"),
            # No mask: the padding is read like any word.
            layers.Embedding(30000, 125),
            # The reset gate after the product, as in cuDNN. The first state is zero and not trained. The output of the last position.
            layers.GRU(100, reset_after=True),
            layers.Dense(2),
        ]
    )


class Training(Trained):
    FASTER_BY_XLA = True

    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        # Adam's constants are explicit: defaults differ among frameworks. Keras' epsilon would be 1e-7.
        optimizer = _mixed.optimizer(setup, Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8))
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().__init__(network(), optimizer, loss)

    def fill(self, parameters):
        self.network.set_weights(to_keras(parameters))

    def canonical(self, values):
        return canonical(values)


def swap_gates(w):
    """Exchange the gates r and z, stacked along the first axis: canonical r, z, n <-> Keras z, r, n."""
    r, z, n = np.split(w, 3)
    return np.concatenate([z, r, n])


def to_keras(parameters):
    """Canonical arrays -> Keras' list: embedding, kernel, recurrent kernel, both biases, dense kernel, dense bias."""
    p = parameters
    biases = np.stack([swap_gates(p["gru.b"]), swap_gates(p["gru.c"])])
    return [p["embedding"], swap_gates(p["gru.w"]).T, swap_gates(p["gru.u"]).T, biases, p["dense.w"].T, p["dense.b"]]


def canonical(values):
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
