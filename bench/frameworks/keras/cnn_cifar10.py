"""The CIFAR-10 network in Keras 3: a Sequential of layers, a loss on logits, SGD; the same file on every backend.

Idiomatic here: the layout of images is the one its backend computes in (A1), and images are permuted once, before training; labels stay
sparse (A19); the loss takes logits, so there is one softmax (A7).
"""

import keras
import numpy as np
from keras import layers

from bench import contract
from bench.frameworks.keras import _loops, _mixed

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


def network(seed):
    def conv(filters, name):  # A15: "same" is a padding of 1 for a 3 x 3 kernel of stride 1
        return layers.Conv2D(filters, 3, padding="same", name=name)

    def pool():  # A14: the stride is said
        return layers.MaxPooling2D(2, strides=2)

    first = keras.config.image_data_format() == "channels_first"
    return keras.Sequential(
        [
            keras.Input((3, 32, 32) if first else (32, 32, 3)),
            conv(50, "conv1"),
            layers.ReLU(),
            conv(50, "conv2"),
            pool(),
            layers.ReLU(),  # A11: after the pool it is the same function on a quarter of the data
            layers.Dropout(0.25, seed=seed),
            conv(100, "conv3"),
            layers.ReLU(),
            conv(100, "conv4"),
            pool(),
            layers.ReLU(),
            layers.Dropout(0.25, seed=seed + 1),
            layers.Reshape((6400,)),  # keeps the order in memory; Flatten would transpose channels-first images
            layers.Dense(512, activation="relu", name="dense1"),
            layers.Dropout(0.5, seed=seed + 2),
            layers.Dense(10, name="dense2"),
        ]
    )


class Training(contract.Training):
    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        self.channels_first = keras.config.image_data_format() == "channels_first"
        self.network = network(setup.seed)
        # A10: Keras' momentum is v <- 0.9 v - lr g, w <- w + v: the specification's, with v scaled by the constant rate.
        self.optimizer = _mixed.optimizer(setup, keras.optimizers.SGD(learning_rate=0.01, momentum=0.9))
        self.optimizer.build(self.network.trainable_variables)
        self.fresh = [keras.ops.convert_to_numpy(value).copy() for value in self.optimizer.variables]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.loop = _loops.make(self.network, loss, self.optimizer, setup.training)

    def load(self, parameters):
        for name in LAYERS:
            layer = self.network.get_layer(name)
            layer.set_weights([self.to_keras(name, parameters[name + ".w"]), parameters[name + ".b"]])
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.loop.start()

    def read(self):
        self.loop.finish()
        return self.canonical(self.network.get_weights())

    def inputs(self, x, y):
        # A2: a permutation; exchanging axes 1 and 3 would also transpose the picture
        return (x if self.channels_first else np.ascontiguousarray(x.transpose(0, 2, 3, 1))), y

    def probe(self, x, y):
        logits, loss, gradients = self.loop.probe(x, y)
        return logits, loss, self.canonical(gradients)

    def step(self, x, y):
        return self.loop.step(x, y)

    def skipped(self):
        return self.loop.skipped()

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        return self.loop.logits(x)

    def to_keras(self, name, w):
        """Canonical weights -> Keras': kernels (kh, kw, in, out), dense (in, out)."""
        if name.startswith("conv"):
            return w.transpose(2, 3, 1, 0)
        if name == "dense1" and not self.channels_first:
            w = w.reshape(512, 100, 8, 8).transpose(0, 2, 3, 1).reshape(512, 6400)
        return w.T

    def canonical(self, values):
        """Keras' arrays, in the order of trainable_variables -> canonical names and layouts."""
        found = {}
        for name, w, b in zip(LAYERS, values[0::2], values[1::2]):
            if name.startswith("conv"):
                w = w.transpose(3, 2, 0, 1)
            else:
                w = w.T
                if name == "dense1" and not self.channels_first:
                    w = w.reshape(512, 8, 8, 100).transpose(0, 3, 1, 2).reshape(512, 6400)
            found[name + ".w"], found[name + ".b"] = w, b
        return found
