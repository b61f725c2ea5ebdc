"""What the deep networks on pictures share: a model whose normalisations keep running statistics, and torchvision's names."""

import keras
from keras import layers

from bench.frameworks.keras import _images, _trained

# torchvision's name for a vector of a normalisation -> Keras'
NORMALISATION = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


class Trained(_trained.Trained):
    def fill(self, parameters):
        self.variables = {name: self.variable(name, value.ndim) for name, value in parameters.items()}
        for name, variable in self.variables.items():
            variable.assign(to_keras(parameters[name]))

    def variable(self, name, dimensions):
        """The Keras variable of a canonical parameter."""
        module, end = name.rsplit(".", 1)
        layer = self.network.get_layer(own(module))
        if isinstance(layer, layers.BatchNormalization):
            return getattr(layer, NORMALISATION[end])
        return layer.kernel if dimensions > 1 else layer.bias

    def read(self):
        self.loop.finish()
        return {name: from_keras(keras.ops.convert_to_numpy(v)) for name, v in self.variables.items()}

    def inputs(self, x, y):
        return _images.contiguous(x), y

    def canonical(self, values):
        """Gradients, in the order of trainable_variables -> canonical names and layouts."""
        gradients = {id(v): value for v, value in zip(self.network.trainable_variables, values)}
        return {name: from_keras(gradients[id(v)]) for name, v in self.variables.items() if id(v) in gradients}


def own(name):
    """A parameter's module as a layer's name: PyTorch, one of the backends, allows no dots."""
    return name.replace(".", "_")


def to_keras(value):
    """A canonical parameter -> Keras': kernels (kh, kw, in, out), dense (in, out)."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def from_keras(value):
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
