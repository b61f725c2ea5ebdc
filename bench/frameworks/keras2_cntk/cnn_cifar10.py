"""Keras 2's own file, on CNTK."""

from bench.frameworks.keras2.cnn_cifar10 import Training

__all__ = ["Training"]
