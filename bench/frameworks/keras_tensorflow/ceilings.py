"""Keras computes with its backend: TensorFlow's ceilings are its own."""

from bench.frameworks.tensorflow.ceilings import calls

__all__ = ["calls"]
