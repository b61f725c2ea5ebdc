"""What the deep networks on pictures share: normalisations, whose running statistics every process keeps for itself."""

from bench.frameworks.chainer import _loop
from bench.frameworks.chainer.framework import average_persistent


class Trained(_loop.Trained):
    def share_statistics(self):
        average_persistent(self.network)
