"""What both networks on MNIST share: Adam, the loss, and batches that lie on the device before the first step."""

import keras

from bench.frameworks.keras import _mixed
from bench.frameworks.keras._adam import Adam
from bench.frameworks.keras._trained import Layered


class Trained(Layered):
    def __init__(self, setup, network):
        keras.utils.set_random_seed(setup.seed)
        # Adam's constants are explicit: defaults differ among frameworks. Keras' epsilon would be 1e-7.
        optimizer = _mixed.optimizer(setup, Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8))
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().__init__(network, optimizer, loss)

    def inputs(self, x, y):
        return keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)
