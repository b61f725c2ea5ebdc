"""Keras 2, the last that ran on Theano and CNTK: one network, one loss and one optimiser for both."""
