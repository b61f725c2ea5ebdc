"""Theano 1: what Lasagne and Keras 2 on Theano share."""
