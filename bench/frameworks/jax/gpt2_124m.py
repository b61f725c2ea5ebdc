"""GPT-2 in JAX: the modules of _gpt.py, Optax's AdamW. Only tensors of two axes decay, as in nanoGPT."""

import jax
import optax

from bench.frameworks.jax import _gpt


def decays(parameters):
    return jax.tree.map(lambda parameter: parameter.ndim > 1, parameters)


class Training(_gpt.Trained):
    SIZES = {"vocabulary": 50304, "length": 1024, "layers": 12, "heads": 12, "width": 768}
    OPTIMIZER = optax.adamw(0.0006, b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1, mask=decays)
