"""Adam in Keras, as in the paper's algorithm 1."""

import math

import keras
from keras import ops


class Adam(keras.optimizers.Adam):
    """Epsilon is added to the corrected root of the second moment.

    Keras' own adds it to the uncorrected root ("epsilon hat"), where it weighs 30 times as much in the first step.
    """

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        step = ops.cast(self.iterations + 1, variable.dtype)
        # Keras keeps the rate in float32, whatever the variable's type is.
        learning_rate = ops.cast(learning_rate, variable.dtype)
        # 1 - beta^step by expm1: the subtraction would cost float32 four digits in the first steps.
        correct1 = -ops.expm1(step * math.log(self.beta_1))
        correct2 = -ops.expm1(step * math.log(self.beta_2))
        self.assign(m, self.beta_1 * m + (1 - self.beta_1) * gradient)
        self.assign(v, self.beta_2 * v + (1 - self.beta_2) * ops.square(gradient))
        # This is rate * (m / correct1) / (sqrt(v / correct2) + epsilon), with one division for each element instead of three.
        root = ops.sqrt(correct2)
        self.assign_sub(variable, learning_rate * root / correct1 * m / (ops.sqrt(v) + self.epsilon * root))
