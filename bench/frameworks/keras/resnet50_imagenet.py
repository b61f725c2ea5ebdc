"""ResNet-50 trained in Keras 3: the features' model with a Dense on top, a loss on logits, momentum; the same file on every backend.

Idiomatic here: a functional model is extended by calling a layer on its output; a BatchNormalization of momentum 0.9 moves its running
statistics a tenth of the way, the variance biased. The layout of images is the one its backend computes in (A1).
"""

import keras
from keras import layers

from bench.frameworks.keras import images, loops, resnet50_features
from bench.frameworks.keras.densenet121_chestxray import NORMALISATION, canonical, to_keras
from bench.frameworks.keras.momentum import Momentum


def network():
    features = resnet50_features.network(images.channels_first(), (None, None))
    return keras.Model(features.input, layers.Dense(1000, name="fc")(features.output))


class Training:
    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        self.network = network()
        self.optimizer = Momentum(learning_rate=0.0125, momentum=0.9, decay=1e-4)
        self.optimizer.build(self.network.trainable_variables)
        self.fresh = [keras.ops.convert_to_numpy(value).copy() for value in self.optimizer.variables]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)  # A7, A19
        # the normalisations behave as in training, whether there is a dropout or none
        self.loop = loops.make(self.network, loss, self.optimizer, True)
        self.variables = {}

    def set_rate(self, rate):
        self.loop.set_rate(rate)

    def load(self, parameters):
        self.variables = {name: self.variable(name, value.ndim) for name, value in parameters.items()}
        for name, variable in self.variables.items():
            variable.assign(to_keras(parameters[name]))
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.loop.start()

    def variable(self, name, dimensions):
        """The Keras variable of a canonical parameter."""
        module, end = name.rsplit(".", 1)
        layer = self.network.get_layer(resnet50_features.own(module))
        if isinstance(layer, layers.BatchNormalization):
            return getattr(layer, NORMALISATION[end])
        return layer.kernel if dimensions > 1 else layer.bias

    def read(self):
        self.loop.finish()
        return {name: canonical(keras.ops.convert_to_numpy(v)) for name, v in self.variables.items()}

    def inputs(self, x, y):
        return images.contiguous(x), y

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
