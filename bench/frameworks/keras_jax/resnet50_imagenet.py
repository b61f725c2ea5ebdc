"""Keras' own file, on JAX."""

from bench.frameworks.keras.resnet50_imagenet import Training

__all__ = ["Training"]
