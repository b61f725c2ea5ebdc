"""Keras' own file, on TensorFlow."""

from bench.frameworks.keras.mlp_mnist import Training

__all__ = ["Training"]
