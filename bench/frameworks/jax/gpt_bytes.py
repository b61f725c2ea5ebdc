"""The GPT on bytes in JAX: the modules of _gpt.py, Optax's Adam with its constants written out, as defaults differ among frameworks."""

import optax

from bench.frameworks.jax import _gpt


class Training(_gpt.Trained):
    SIZES = {"vocabulary": 256, "length": 256, "layers": 6, "heads": 6, "width": 384}
    OPTIMIZER = optax.adam(0.001, b1=0.9, b2=0.99, eps=1e-8)
