"""The LLaMA on bytes in JAX: the modules of _llama.py."""

from bench.frameworks.jax import _llama


class Training(_llama.Trained):
    SIZES = {"vocabulary": 256, "length": 256, "layers": 6, "heads": 6, "groups": 2, "width": 384, "hidden": 1024}
