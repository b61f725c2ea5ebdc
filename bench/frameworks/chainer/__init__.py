"""Chainer 7: define by run, on NumPy and CuPy."""
