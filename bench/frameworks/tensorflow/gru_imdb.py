"""The IMDB network in TensorFlow: Keras' Embedding, GRU and Dense, Adam, and the training step as one tf.function.

Idiomatic here: keras.layers.GRU with its defaults is cuDNN's fused kernel on a GPU. On a CPU, and where XLA compiles it, it is a
tf.while_loop over the positions. On a CPU XLA compiles the step, which takes three quarters of the time that it takes without. Keras stacks
the gates z, r, n and keeps both biases in one (2, 300) array. The embedding's gradient is sparse (tf.IndexedSlices); Adam's moments, which
every row has, make it dense.
"""

import keras
import numpy as np
from keras import layers

from bench.frameworks.tensorflow._keras import KERAS_2, loop
from bench.frameworks.tensorflow._trained import Trained
from bench.frameworks.tensorflow.framework import by_xla

# On a CPU. Keras 2 is left as it is: its GRU was not measured so.
FASTER_BY_XLA = not KERAS_2


def network():
    return keras.Sequential(
        [
            keras.Input((150,), dtype="int32"),
            # No mask: the padding is read like any word.
            layers.Embedding(30000, 125),
            # The reset gate after the product, as in cuDNN. The first state is zero and not trained. The output of the last position.
            # XLA compiles a loop: it has no kernel that calls cuDNN's GRU.
            layers.GRU(100, reset_after=True, **loop(by_xla(FASTER_BY_XLA))),
            layers.Dense(2),
        ]
    )


class Training(Trained):
    FASTER_BY_XLA = FASTER_BY_XLA

    def __init__(self, setup):
        super().__init__(setup, network())

    def fill(self, parameters):
        self.network.set_weights(to_keras(parameters))

    def canonical(self, values):
        return canonical(values)


def swap_gates(w):
    """Exchange the gates r and z along the first axis: canonical order r, z, n; Keras' order z, r, n."""
    r, z, n = np.split(w, 3)
    return np.concatenate([z, r, n])


def to_keras(parameters):
    """Canonical arrays as Keras' list: embedding, kernel, recurrent kernel, both biases, dense kernel, dense bias."""
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
