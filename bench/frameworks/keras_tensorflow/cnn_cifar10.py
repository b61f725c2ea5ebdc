"""Keras' own file, on TensorFlow."""

from bench.frameworks.keras.cnn_cifar10 import Training

__all__ = ["Training"]
