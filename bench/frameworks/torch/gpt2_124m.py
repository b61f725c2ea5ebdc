"""GPT-2 in PyTorch: the modules of _gpt.py, AdamW as one fused kernel. Only tensors of two axes decay, as in nanoGPT."""

from bench.frameworks.torch import _gpt
from bench.frameworks.torch.framework import adam


class Training(_gpt.Trained):
    def new(self):
        return _gpt.Network(vocabulary=50304, length=1024, layers=12, heads=12, width=768)

    def optimizer_of(self, setup):
        return adam(setup, self.network, 0.0006, (0.9, 0.95), decay=0.1)
