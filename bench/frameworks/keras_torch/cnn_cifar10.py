"""Keras' own file, on PyTorch."""

from bench.frameworks.keras.cnn_cifar10 import Training

__all__ = ["Training"]
