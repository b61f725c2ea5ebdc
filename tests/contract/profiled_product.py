"""Run in an image's environment: what its framework's profiler tells of five products of matrices, as JSON."""

import json
import sys

from bench.contract import Setup, load_framework

name = sys.argv[1]
load_framework(name).configure(Setup("cpu", "fp32", "default", 2, 1, True))


def products():
    """A function that does five products and waits for them."""
    if name == "torch":
        import torch

        a = torch.ones(300, 300)
        return lambda: [torch.mm(a, a) for _ in range(5)]
    if name == "jax":
        import jax

        a = jax.numpy.ones((300, 300))
        product = jax.jit(lambda x: x @ x)
        product(a).block_until_ready()
        return lambda: [product(a).block_until_ready() for _ in range(5)]
    import tensorflow as tf

    a = tf.ones((300, 300))
    function = tf.function(lambda x: x @ x)
    function(a)
    return lambda: [function(a).numpy() for _ in range(5)]


profile = __import__("bench.frameworks.%s.profile" % name, fromlist=["operations"])
print(json.dumps([each._asdict() for each in profile.operations(products(), "cpu")]))
