"""Keras' own file, on PyTorch."""

from bench.frameworks.keras.densenet121_chestxray import Training

__all__ = ["Training"]
