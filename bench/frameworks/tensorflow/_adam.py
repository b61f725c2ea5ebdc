"""Adam in Keras on TensorFlow, in the form of the paper's algorithm 1."""

import keras
import numpy as np
import tensorflow as tf


class Adam(keras.optimizers.Adam):
    """Epsilon is added to the corrected root of the second moment.

    Keras' Adam adds it to the uncorrected root ("epsilon hat"). That makes epsilon 30 times as large in the first step.
    """

    def update_step(self, gradient, variable, learning_rate):
        m = self._momentums[self._get_variable_index(variable)]
        v = self._velocities[self._get_variable_index(variable)]
        step = tf.cast(self.iterations + 1, tf.float32)
        # 1 - beta^step by expm1: the subtraction would cost float32 four digits in the first steps.
        correct1 = -tf.math.expm1(step * float(np.log(self.beta_1)))
        correct2 = -tf.math.expm1(step * float(np.log(self.beta_2)))
        gradient = tf.convert_to_tensor(gradient)
        m.assign(self.beta_1 * m + (1 - self.beta_1) * gradient)
        v.assign(self.beta_2 * v + (1 - self.beta_2) * tf.square(gradient))
        variable.assign_sub(learning_rate * (m / correct1) / (tf.sqrt(v / correct2) + self.epsilon))
