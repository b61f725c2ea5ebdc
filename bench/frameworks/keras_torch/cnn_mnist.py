"""Keras' own file, on PyTorch."""

from bench.frameworks.keras.cnn_mnist import Training

__all__ = ["Training"]
