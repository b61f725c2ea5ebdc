"""Keras' own file, on JAX."""

from bench.frameworks.keras.gru_imdb import Training

__all__ = ["Training"]
