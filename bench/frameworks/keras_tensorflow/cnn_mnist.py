"""Keras' own file, on TensorFlow."""

from bench.frameworks.keras.cnn_mnist import Training

__all__ = ["Training"]
