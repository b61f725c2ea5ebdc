"""Keras 3 on JAX."""
