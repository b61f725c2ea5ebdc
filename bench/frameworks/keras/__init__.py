"""Keras 3: one network, one loss and one optimiser for three backends; the training step is each backend's own."""
