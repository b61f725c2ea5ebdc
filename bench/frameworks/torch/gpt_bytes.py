"""The GPT on bytes in PyTorch: the modules of _gpt.py, Adam with its constants written out, as defaults differ among frameworks."""

from bench.frameworks.torch import _gpt
from bench.frameworks.torch.framework import adam


class Training(_gpt.Trained):
    def new(self):
        return _gpt.Network(vocabulary=256, length=256, layers=6, heads=6, width=384)

    def optimizer_of(self, setup):
        return adam(setup, self.network, 0.001, (0.9, 0.99))
