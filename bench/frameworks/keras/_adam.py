"""Adam in Keras, as in the paper's algorithm 1, on each backend with the kernels that Keras or the backend uses for its own."""

import math

import keras
from keras import ops


class Adam(keras.optimizers.Adam):
    """Epsilon is added to the corrected root of the second moment.

    Keras' own adds it to the uncorrected root ("epsilon hat"), where it weighs 30 times as much in the first step.
    """

    def _scaled(self, learning_rate, dtype):
        """The step's rate and epsilon, such that rate m / (sqrt(v) + epsilon) is the paper's step: both are times sqrt(1 - beta_2^step)."""
        step = ops.cast(self.iterations + 1, dtype)
        # 1 - beta^step by expm1: the subtraction would cost float32 four digits in the first steps.
        correct1 = -ops.expm1(step * math.log(self.beta_1))
        root = ops.sqrt(-ops.expm1(step * math.log(self.beta_2)))
        # Keras keeps the rate in float32, whatever the variable's type is.
        return ops.cast(learning_rate, dtype) * root / correct1, self.epsilon * root

    def _moments(self, variable):
        index = self._get_variable_index(variable)
        return self._momentums[index], self._velocities[index]

    def _backend_update_step(self, gradients, variables, learning_rate):
        """On PyTorch each call computes all variables, as in the Adam that Keras puts in place of its own there, not of a subclass."""
        if keras.backend.backend() != "torch":
            super()._backend_update_step(gradients, variables, learning_rate)
            return
        import torch

        rate, epsilon = self._scaled(learning_rate, variables[0].dtype)
        m, v = ([moment.value for moment in moments] for moments in zip(*map(self._moments, variables)))
        torch._foreach_lerp_(m, gradients, 1 - self.beta_1)
        torch._foreach_mul_(v, self.beta_2)
        torch._foreach_addcmul_(v, gradients, gradients, 1 - self.beta_2)
        roots = torch._foreach_sqrt(v)
        # Rate and epsilon are tensors on the device: numbers would have to be waited for.
        torch._foreach_add_(roots, epsilon)
        steps = torch._foreach_mul(m, rate)
        torch._foreach_div_(steps, roots)
        torch._foreach_sub_([variable.value for variable in variables], steps)

    def update_step(self, gradient, variable, learning_rate):
        m, v = self._moments(variable)
        rate, epsilon = self._scaled(learning_rate, variable.dtype)
        if keras.backend.backend() == "tensorflow":
            from bench.frameworks.tensorflow._adam import update

            update(variable, m.value, v.value, gradient, rate, epsilon, self.beta_1, self.beta_2)
            return
        self.assign(m, self.beta_1 * m + (1 - self.beta_1) * gradient)
        self.assign(v, self.beta_2 * v + (1 - self.beta_2) * ops.square(gradient))
        # XLA makes one loop of all this.
        self.assign_sub(variable, rate * m / (ops.sqrt(v) + epsilon))
