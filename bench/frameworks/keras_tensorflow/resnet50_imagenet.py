"""Keras' own file, on TensorFlow."""

from bench.frameworks.keras.resnet50_imagenet import Training

__all__ = ["Training"]
