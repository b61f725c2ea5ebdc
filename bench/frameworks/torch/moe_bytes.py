"""The mixture of experts on bytes in PyTorch: LLaMA's modules with a router (_llama.py), and the optimiser of gpt_bytes.py."""

from bench.frameworks.torch import llama_bytes


class Training(llama_bytes.Training):
    SIZES = dict(llama_bytes.Training.SIZES, hidden=512, experts=4, chosen=2)

    def loss(self, x, y):
        logits, loss = super().loss(x, y)
        return logits, loss + 0.01 * sum(block.ffn.spread for block in self.network.blocks)
