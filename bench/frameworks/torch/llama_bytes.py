"""The LLaMA on bytes in PyTorch: the modules of _llama.py and the optimiser of gpt_bytes.py."""

from bench.frameworks.torch import _llama, gpt_bytes


class Training(_llama.Trained, gpt_bytes.Training):
    SIZES = {"vocabulary": 256, "length": 256, "layers": 6, "heads": 6, "groups": 2, "width": 384, "hidden": 1024}
