"""Momentum with weight decay in Keras, as an L2 penalty."""

import keras
from keras import ops


class Momentum(keras.optimizers.SGD):
    """Momentum: v = m v + g + decay w; w = w - rate v, without dampening or Nesterov.

    Keras' own stores -rate v, where a new rate works late only, and its weight_decay does not go through the momentum.
    """

    def __init__(self, decay, **options):
        super().__init__(**options)
        self.decay = decay

    def update_step(self, gradient, variable, learning_rate):
        learning_rate = ops.cast(learning_rate, variable.dtype)
        v = self.momentums[self._get_variable_index(variable)]
        self.assign(v, self.momentum * v + gradient + self.decay * variable)
        self.assign_sub(variable, learning_rate * v)
