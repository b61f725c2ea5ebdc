"""Keras' own file, on JAX."""

from bench.frameworks.keras.cnn_mnist import Training

__all__ = ["Training"]
