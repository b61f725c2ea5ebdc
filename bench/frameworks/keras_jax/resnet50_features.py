"""Keras' own file, on JAX."""

from bench.frameworks.keras.resnet50_features import Inference

__all__ = ["Inference"]
