"""The training loop of a Keras model, on every backend: load, read, inputs, probe, step, predict. The step itself is in _loops.py."""

import keras

from bench import contract
from bench.frameworks.keras import _loops


class Trained(contract.Training):
    """A subclass gives fill(parameters), which sets the model's weights, and canonical(values), for its weights or their gradients."""

    # True: XLA makes TensorFlow's step faster on a CPU.
    FASTER_BY_XLA = False

    def __init__(self, network, optimizer, loss, dropout=True):
        self.network, self.optimizer = network, optimizer
        optimizer.build(network.trainable_variables)
        self.fresh = [keras.ops.convert_to_numpy(value).copy() for value in optimizer.variables]
        self.loop = _loops.make(network, loss, optimizer, dropout, self.FASTER_BY_XLA)

    def load(self, parameters):
        self.fill(parameters)
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.loop.start()

    def read(self):
        self.loop.finish()
        return self.canonical(self.network.get_weights())

    def probe(self, x, y):
        logits, loss, gradients = self.loop.probe(x, y)
        return logits, loss, self.canonical(gradients)

    def step(self, x, y):
        return self.loop.step(x, y)

    def predict(self, x):
        return self.loop.logits(x)

    def set_rate(self, rate):
        self.loop.set_rate(rate)

    def skipped(self):
        return self.loop.skipped()

    def updates(self):
        return self.loop.updates()


class Layered(Trained):
    """Every layer has a weight and a bias. A subclass gives LAYERS, in the model's order, to_keras(name, w) and from_keras(name, w)."""

    def fill(self, parameters):
        for name in self.LAYERS:
            weights = [self.to_keras(name, parameters[name + ".w"]), parameters[name + ".b"]]
            self.network.get_layer(name).set_weights(weights)

    def canonical(self, values):
        """Keras' arrays, in the order of trainable_variables -> canonical names and layouts."""
        arrays = {}
        for name, w, b in zip(self.LAYERS, values[0::2], values[1::2]):
            arrays[name + ".w"], arrays[name + ".b"] = self.from_keras(name, w), b
        return arrays
