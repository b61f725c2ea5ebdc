"""The mixture of experts on bytes in JAX: LLaMA's modules with a router (_llama.py)."""

from bench.frameworks.jax import llama_bytes


class Training(llama_bytes.Training):
    SIZES = dict(llama_bytes.Training.SIZES, hidden=512, experts=4, chosen=2)
