"""What the deep networks on pictures have of their own: normalisations that keep statistics, of each process its own."""

from bench.frameworks.chainer import _loop
from bench.frameworks.chainer.framework import average_persistent


class Trained(_loop.Trained):
    def share_statistics(self):
        average_persistent(self.network)

    def inputs(self, x, y):
        return x, y  # (N, C, H, W) and contiguous as it comes (A1, B10)
