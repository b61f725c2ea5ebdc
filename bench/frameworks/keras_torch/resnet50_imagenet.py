"""Keras' own file, on PyTorch."""

from bench.frameworks.keras.resnet50_imagenet import Training

__all__ = ["Training"]
