"""Keras' own file, on PyTorch."""

from bench.frameworks.keras.mlp_mnist import Training

__all__ = ["Training"]
