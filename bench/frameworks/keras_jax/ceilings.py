"""Keras computes with its backend: JAX's ceilings are its own."""

from bench.frameworks.jax.ceilings import calls

__all__ = ["calls"]
