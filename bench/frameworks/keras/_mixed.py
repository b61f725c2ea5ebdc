"""Mixed precision in Keras, on every backend: a global dtype policy, and for float16 a LossScaleOptimizer.

This follows Keras' guide "Mixed precision". Layers compute in the half type from float32 variables. Losses cast their inputs to float32.
"""

import keras

from bench import mixed

if keras.__version__.startswith("2."):
    from bench.frameworks.tensorflow._keras2 import LossScaleOptimizer
else:
    from keras.optimizers import LossScaleOptimizer


def configure(setup):
    """Set the policy of every layer that is made afterwards. At other precisions Keras' own policy stays: its floatx."""
    half = mixed.half(setup.precision)
    if half:
        keras.mixed_precision.set_global_policy("mixed_" + half)


def optimizer(setup, plain):
    """A Keras optimiser. At float16 it skips a step whose gradients overflow, and changes the loss scale."""
    if mixed.half(setup.precision) != "float16":
        return plain
    return LossScaleOptimizer(plain, initial_scale=mixed.INITIAL_SCALE, dynamic_growth_steps=mixed.GROWTH_STEPS)


def unscaled(optimizer, gradients):
    """Gradients of the scaled loss, as NumPy arrays, divided by the scale."""
    if not isinstance(optimizer, LossScaleOptimizer):
        return gradients
    scale = float(optimizer.dynamic_scale)
    return [gradient / scale for gradient in gradients]


class Skipped:
    """Counts the steps that the loss scale skipped: the steps that ran, less those that the optimiser counted."""

    def __init__(self, optimizer):
        self._optimizer, self._steps = optimizer, 0
        self._scales = isinstance(optimizer, LossScaleOptimizer)

    def add(self):
        self._steps += 1

    def restart(self):
        self._steps = 0

    def count(self, iterations=None):
        """`iterations`: the optimiser's count, where its variable is not up to date."""
        if not self._scales:
            return 0
        return self._steps - int(self._optimizer.iterations if iterations is None else iterations)
