"""Keras has no profiler of its own: its backend's sees what it computes."""

from bench.frameworks.jax.profile import operations

__all__ = ["operations"]
