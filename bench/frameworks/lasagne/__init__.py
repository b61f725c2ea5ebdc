"""Lasagne on Theano."""
