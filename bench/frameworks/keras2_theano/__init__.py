"""Keras 2 on Theano."""
