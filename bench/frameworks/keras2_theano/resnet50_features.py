"""Keras 2's own file, on Theano."""

from bench.frameworks.keras2.resnet50_features import Inference

__all__ = ["Inference"]
