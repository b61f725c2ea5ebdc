"""Mixed precision in Keras 3, on every backend: a global dtype policy, and for float16 a LossScaleOptimizer.

As Keras' guide "Mixed precision" has them. Layers then compute in the half type from float32 variables; losses take their inputs in
float32 by themselves.
"""

import keras

from bench import mixed


def configure(setup):
    """The policy of every layer that is made afterwards; at other precisions Keras' own, which follows its floatx."""
    half = mixed.half(setup.precision)
    if half:
        keras.config.set_dtype_policy("mixed_" + half)


def optimizer(setup, plain):
    """A Keras optimiser; at float16 one that skips a step whose gradients overflowed, and moves the loss scale."""
    if mixed.half(setup.precision) != "float16":
        return plain
    return keras.optimizers.LossScaleOptimizer(
        plain, initial_scale=mixed.INITIAL_SCALE, dynamic_growth_steps=mixed.GROWTH_STEPS
    )


def unscaled(optimizer, gradients):
    """Gradients of the scaled loss, as NumPy arrays, divided by the scale."""
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return gradients
    scale = float(optimizer.dynamic_scale)
    return [gradient / scale for gradient in gradients]


class Skipped:
    """How many of the steps so far changed nothing: those that were asked for and that the optimiser did not count."""

    def __init__(self, optimizer):
        self._optimizer, self._asked = optimizer, 0
        self._scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)

    def asked(self):
        self._asked += 1

    def restart(self):
        self._asked = 0

    def count(self, iterations=None):
        """`iterations`: of the optimiser, where its variable is not up to date."""
        if not self._scales:
            return 0
        return self._asked - int(self._optimizer.iterations if iterations is None else iterations)
