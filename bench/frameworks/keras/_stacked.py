"""Training of a Keras model on bytes whose weights are several canonical ones each, such as q, k and v."""

import keras

from bench import stacked
from bench.frameworks.keras import _mixed
from bench.frameworks.keras._adam import Adam
from bench.frameworks.keras._trained import Trained


class Training(Trained):
    """A subclass gives network_of(). The model has places(): (weight, canonical names, whether it is (in, out)) of each."""

    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        # Adam's constants are explicit: defaults differ among frameworks. Keras' epsilon would be 1e-7.
        adam = Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.99, epsilon=1e-8)
        # The loss takes logits: there is exactly one softmax. Its mean is over all positions.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().__init__(self.network_of(), _mixed.optimizer(setup, adam), loss)

    def fill(self, parameters):
        fill(self.network, parameters)

    def canonical(self, values):
        return canonical(self.network, values)


def fill(network, parameters):
    network.rows = {name: len(value) for name, value in parameters.items()}
    for weight, names, turned in network.places():
        weight.assign(stacked.joined(parameters, names, weight.shape if turned else None))


def canonical(network, values):
    """Keras' arrays, in the order of trainable_variables -> canonical names and layouts."""
    of_weight = {id(weight): (names, turned) for weight, names, turned in network.places()}
    found = {}
    for value, variable in zip(values, network.trainable_variables):
        names, turned = of_weight[id(variable)]
        found.update(stacked.parts(value, names, network.rows, turned))
    return found
