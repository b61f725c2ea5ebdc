"""Keras computes with its backend: PyTorch's ceilings are its own."""

from bench.frameworks.torch.ceilings import calls

__all__ = ["calls"]
