"""What both networks on MNIST do with a Keras model, on every backend: load, step, read."""

import keras

from bench import contract
from bench.frameworks.keras import _loops, _mixed
from bench.frameworks.keras._adam import Adam


class Trained(contract.Training):
    """A subclass gives LAYERS, in the model's order, and to_keras(name, w), from_keras(name, w), between the layouts of a weight."""

    def __init__(self, setup, network):
        keras.utils.set_random_seed(setup.seed)
        self.network = network
        # C9: every constant set; Keras' epsilon would be 1e-7
        self.optimizer = _mixed.optimizer(setup, Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8))
        self.optimizer.build(self.network.trainable_variables)
        self.fresh = [keras.ops.convert_to_numpy(value).copy() for value in self.optimizer.variables]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)  # A7, A19
        self.loop = _loops.make(self.network, loss, self.optimizer, True)

    def load(self, parameters):
        for name in self.LAYERS:
            layer = self.network.get_layer(name)
            layer.set_weights([self.to_keras(name, parameters[name + ".w"]), parameters[name + ".b"]])
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.loop.start()

    def read(self):
        self.loop.finish()
        return self.canonical(self.network.get_weights())

    def inputs(self, x, y):
        """On the device, before the first step: what a step is given there is not copied."""
        return keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)

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

    def canonical(self, values):
        """Keras' arrays, in the order of trainable_variables -> canonical names and layouts."""
        found = {}
        for name, w, b in zip(self.LAYERS, values[0::2], values[1::2]):
            found[name + ".w"], found[name + ".b"] = self.from_keras(name, w), b
        return found
