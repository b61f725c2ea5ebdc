"""Keras 2, which TensorFlow brings up to 2.15, under the names of Keras 3: the optimisers, and float16's loss scale.

Keras 2's own LossScaleOptimizer counts a skipped step, and Adam would correct its moments for a step that it did not take. So the loss
scale is written out, after Keras 3's.
"""

import tensorflow as tf

from bench.frameworks.tensorflow import _adam

# In Keras 2.10 the classes with build() and update_step(), which later versions have as keras.optimizers, stand here.
optimizers = tf.keras.optimizers.experimental


class Named:
    """Keras 3's names."""

    @property
    def variables(self):
        # A method in Keras 2.10.
        return self._variables

    def scale_loss(self, loss):
        return loss

    def apply(self, gradients, variables):
        self.apply_gradients(zip(gradients, variables))


class SGD(Named, optimizers.SGD):
    def __init__(self, *arguments, **options):
        # The cell's mode says what XLA compiles.
        super().__init__(*arguments, jit_compile=False, **options)


class Adam(Named, optimizers.Adam):
    """Epsilon is added to the corrected root of the second moment: bench.frameworks.keras._adam says why."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, jit_compile=False, **options)

    def update_step(self, gradient, variable):
        index = self._index_dict[self._var_key(variable)]
        correct1, root = _adam.corrections(tf.cast(self.iterations + 1, variable.dtype), self.beta_1, self.beta_2)
        rate = tf.cast(self.learning_rate, variable.dtype) * root / correct1
        moments = self._momentums[index], self._velocities[index]
        _adam.update(variable, *moments, gradient, rate, self.epsilon * root, self.beta_1, self.beta_2)


class LossScaleOptimizer:
    """Skips a step whose gradients overflow and halves the scale; doubles it after so many steps without an overflow."""

    def __init__(self, plain, initial_scale, dynamic_growth_steps):
        self._plain, self._growth_steps = plain, dynamic_growth_steps
        self.dynamic_scale = tf.Variable(float(initial_scale), trainable=False)
        self._steps = tf.Variable(0, trainable=False)

    @property
    def variables(self):
        return list(self._plain.variables) + [self.dynamic_scale, self._steps]

    @property
    def iterations(self):
        return self._plain.iterations

    def build(self, variables):
        self._plain.build(variables)

    def scale_loss(self, loss):
        return loss * self.dynamic_scale

    def apply(self, gradients, variables):
        gradients = [tf.convert_to_tensor(gradient) / self.dynamic_scale for gradient in gradients]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

        def taken():
            self._plain.apply(gradients, variables)
            grows = self._steps + 1 == self._growth_steps
            self.dynamic_scale.assign(self.dynamic_scale * tf.where(grows, 2.0, 1.0))
            self._steps.assign(tf.where(grows, 0, self._steps + 1))
            return True

        def skipped():
            self.dynamic_scale.assign(self.dynamic_scale / 2)
            self._steps.assign(0)
            return False

        tf.cond(finite, taken, skipped)
