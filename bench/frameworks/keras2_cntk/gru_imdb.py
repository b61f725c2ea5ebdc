"""Keras 2's own file, on CNTK."""

from bench.frameworks.keras2.gru_imdb import Training

__all__ = ["Training"]
