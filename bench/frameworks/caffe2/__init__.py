"""Caffe2, as old PyTorch wheels carry it."""
