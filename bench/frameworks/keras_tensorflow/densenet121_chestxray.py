"""Keras' own file, on TensorFlow."""

from bench.frameworks.keras.densenet121_chestxray import Training

__all__ = ["Training"]
