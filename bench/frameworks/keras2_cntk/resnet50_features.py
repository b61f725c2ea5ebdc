"""Keras 2's own file, on CNTK."""

from bench.frameworks.keras2.resnet50_features import Inference

__all__ = ["Inference"]
