"""Keras' own file, on PyTorch."""

from bench.frameworks.keras.resnet50_features import Inference

__all__ = ["Inference"]
