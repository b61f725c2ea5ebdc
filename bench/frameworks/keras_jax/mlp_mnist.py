"""Keras' own file, on JAX."""

from bench.frameworks.keras.mlp_mnist import Training

__all__ = ["Training"]
