"""Keras 2 on CNTK."""
