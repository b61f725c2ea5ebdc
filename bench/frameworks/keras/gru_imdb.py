"""The IMDB network in Keras 3: Embedding, GRU, Dense and Adam; the same file on every backend.

Idiomatic here: layers.GRU with its defaults is cuDNN's fused kernel on TensorFlow and PyTorch with a GPU (C1), a loop in the graph
elsewhere. Keras stacks the gates z, r, n, keeps both biases in one (2, 300) array, and returns the last state (C5).
"""

import keras
import numpy as np
from keras import layers

from bench import contract
from bench.frameworks.keras import _loops, _mixed
from bench.frameworks.keras._adam import Adam


def network():
    return keras.Sequential(
        [
            keras.Input((150,), dtype="int32"),
            layers.Embedding(30000, 125),  # no mask: the padding is read like any word
            layers.GRU(100, reset_after=True),  # C8: cuDNN's convention; C6: it starts from zero
            layers.Dense(2),
        ]
    )


class Training(contract.Training):
    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        self.network = network()
        # C9: every constant set; Keras' epsilon would be 1e-7
        self.optimizer = _mixed.optimizer(setup, Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8))
        self.optimizer.build(self.network.trainable_variables)
        self.fresh = [keras.ops.convert_to_numpy(value).copy() for value in self.optimizer.variables]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.loop = _loops.make(self.network, loss, self.optimizer, True)

    def load(self, parameters):
        self.network.set_weights(to_keras(parameters))
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.loop.start()

    def read(self):
        self.loop.finish()
        return canonical(self.network.get_weights())

    def inputs(self, x, y):
        return x, y

    def probe(self, x, y):
        logits, loss, gradients = self.loop.probe(x, y)
        return logits, loss, canonical(gradients)

    def step(self, x, y):
        return self.loop.step(x, y)

    def skipped(self):
        return self.loop.skipped()

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        return self.loop.logits(x)


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
