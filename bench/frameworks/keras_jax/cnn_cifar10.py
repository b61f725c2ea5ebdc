"""Keras' own file, on JAX."""

from bench.frameworks.keras.cnn_cifar10 import Training

__all__ = ["Training"]
