"""Keras' own file, on TensorFlow."""

from bench.frameworks.keras.gru_imdb import Training

__all__ = ["Training"]
