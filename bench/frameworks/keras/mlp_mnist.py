"""The MNIST perceptron in Keras 3: two Dense layers, Adam, the whole set as one batch; the same file on every backend.

Idiomatic here: Dense keeps its weight as (in, out). The last layer has no softmax: the loss takes logits.
"""

import keras
from keras import layers

from bench.frameworks.keras._mnist import Trained


def network():
    return keras.Sequential(
        [keras.Input((784,)), layers.Dense(32, activation="relu", name="dense1"), layers.Dense(10, name="dense2")]
    )


class Training(Trained):
    LAYERS = ("dense1", "dense2")

    def __init__(self, setup):
        super().__init__(setup, network())

    def inputs(self, x, y):
        return super().inputs(x.reshape(len(x), 784), y)

    def to_keras(self, name, w):
        return w.T

    from_keras = to_keras
