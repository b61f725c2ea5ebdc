"""Keras 2's own file, on Theano."""

from bench.frameworks.keras2.gru_imdb import Training

__all__ = ["Training"]
