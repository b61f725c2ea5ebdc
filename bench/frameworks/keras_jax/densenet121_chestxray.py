"""Keras' own file, on JAX."""

from bench.frameworks.keras.densenet121_chestxray import Training

__all__ = ["Training"]
