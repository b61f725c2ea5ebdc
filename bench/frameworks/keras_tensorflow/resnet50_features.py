"""Keras' own file, on TensorFlow."""

from bench.frameworks.keras.resnet50_features import Inference

__all__ = ["Inference"]
