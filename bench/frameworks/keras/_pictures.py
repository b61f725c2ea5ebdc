"""What the deep networks on pictures do with a model whose normalisations keep statistics: load, step, read; on every backend."""

import keras
from keras import layers

from bench import contract
from bench.frameworks.keras import _images, _loops

# torchvision's word for a vector of a normalisation -> Keras'
NORMALISATION = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


class Trained(contract.Training):
    def __init__(self, network, optimizer, loss):
        self.network, self.optimizer = network, optimizer
        self.optimizer.build(self.network.trainable_variables)
        self.fresh = [keras.ops.convert_to_numpy(value).copy() for value in self.optimizer.variables]
        # the normalisations behave as in training, whether there is a dropout or none
        self.loop = _loops.make(self.network, loss, self.optimizer, True)
        self.variables = {}

    def load(self, parameters):
        self.variables = {name: self.variable(name, value.ndim) for name, value in parameters.items()}
        for name, variable in self.variables.items():
            variable.assign(to_keras(parameters[name]))
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.loop.start()

    def set_rate(self, rate):
        self.loop.set_rate(rate)

    def variable(self, name, dimensions):
        """The Keras variable of a canonical parameter."""
        module, end = name.rsplit(".", 1)
        layer = self.network.get_layer(own(module))
        if isinstance(layer, layers.BatchNormalization):
            return getattr(layer, NORMALISATION[end])
        return layer.kernel if dimensions > 1 else layer.bias

    def read(self):
        self.loop.finish()
        return {name: canonical(keras.ops.convert_to_numpy(v)) for name, v in self.variables.items()}

    def inputs(self, x, y):
        return _images.contiguous(x), y

    def probe(self, x, y):
        logits, loss, gradients = self.loop.probe(x, y)
        found = {id(v): value for v, value in zip(self.network.trainable_variables, gradients)}
        return logits, loss, {name: canonical(found[id(v)]) for name, v in self.variables.items() if id(v) in found}

    def step(self, x, y):
        return self.loop.step(x, y)

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        return self.loop.logits(x)


def own(name):
    """A parameter's module as a layer's name: PyTorch, one of the backends, allows no dots."""
    return name.replace(".", "_")


def to_keras(value):
    """A canonical parameter -> Keras': kernels (kh, kw, in, out), dense (in, out)."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def canonical(value):
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
