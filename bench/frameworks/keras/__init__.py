"""Keras 3: one network, one loss and one optimiser for three backends. Every backend has its own training step."""
