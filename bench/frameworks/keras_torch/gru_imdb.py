"""Keras' own file, on PyTorch."""

from bench.frameworks.keras.gru_imdb import Training

__all__ = ["Training"]
