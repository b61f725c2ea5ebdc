"""Mistakes in the MNIST perceptron in TensorFlow."""

import keras
import tensorflow as tf

from bench.frameworks.tensorflow import mlp_mnist
from tests.contract.mutants import anywhere
from tests.contract.mutants.registry import Planted
from tests.contract.mutants.tensorflow_cnn import with_optimizer

mlp = Planted("tensorflow", "mlp-mnist")
Training = mlp_mnist.Training
mlp.of_any_framework(Training, anywhere.EVERYWHERE)
mlp.of_any_framework(Training, (("data", anywhere.HalfOfTheBatch),))


@mlp.mistake("optimiser")
class AdamOfKeras(Training):
    """Keras' own Adam: epsilon added to the root of the uncorrected moment."""

    def __init__(self, setup):
        super().__init__(setup)
        with_optimizer(self, keras.optimizers.Adam(0.001, epsilon=1e-8))


@mlp.mistake("precision")
class HalfPicturesInTraining(Training):
    """Training rounds the pictures to bfloat16."""

    def __init__(self, setup):
        super().__init__(setup)
        self.half = setup.training

    def step(self, x, y):
        return super().step(tf.cast(tf.cast(x, tf.bfloat16), tf.float32) if self.half else x, y)
