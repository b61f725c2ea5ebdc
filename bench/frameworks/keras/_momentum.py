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

    def _backend_update_step(self, gradients, variables, learning_rate):
        """On PyTorch each call computes all variables, as in the SGD that Keras puts in place of its own there, not of a subclass."""
        if keras.backend.backend() != "torch":
            super()._backend_update_step(gradients, variables, learning_rate)
            return
        import torch

        rate = ops.cast(learning_rate, variables[0].dtype)
        v = [self.momentums[self._get_variable_index(variable)].value for variable in variables]
        w = [variable.value for variable in variables]
        torch._foreach_mul_(v, self.momentum)
        torch._foreach_add_(v, gradients)
        torch._foreach_add_(v, w, alpha=self.decay)
        # The rate is a tensor on the device: a number would have to be waited for.
        torch._foreach_sub_(w, torch._foreach_mul(v, rate))

    def update_step(self, gradient, variable, learning_rate):
        learning_rate = ops.cast(learning_rate, variable.dtype)
        v = self.momentums[self._get_variable_index(variable)]
        self.assign(v, self.momentum * v + gradient + self.decay * variable)
        self.assign_sub(variable, learning_rate * v)
