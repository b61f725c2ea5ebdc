"""The function of a prompt and of a step on each backend, as KerasHub compiles its `generate`; and how the cache is written.

A decoder is called with the cache, the tokens (N, T) as a NumPy array, and their first place. start() comes after new weights.
"""

import keras
from keras import ops


def make(network, decode):
    """The decoder of the backend on which Keras runs. decode(network, cache, x, place) is the function."""
    return {"tensorflow": _TensorFlow, "jax": _Jax, "torch": _Torch}[keras.backend.backend()](network, decode)


def written(cache, new, place):
    """The cache (N, heads, capacity, size) with `new` (N, heads, T, size) from `place` on."""
    if keras.backend.backend() == "torch":
        # In place: Keras' slice_update copies the whole cache on this backend.
        return cache.index_copy_(2, (place + ops.arange(new.shape[2])).long(), new)
    return ops.slice_update(cache, (0, 0, place, 0), new)


class _TensorFlow:
    """XLA compiles it, on a CPU too, where it is faster than TensorFlow's own kernels."""

    xla = True

    def __init__(self, network, decode):
        import tensorflow as tf

        self.tf = tf
        # Traced and compiled once for the shapes of a prompt and once for those of a step.
        self.decode = tf.function(lambda *arguments: decode(network, *arguments), jit_compile=self.xla)

    def start(self):
        """The weights are Keras' variables themselves."""

    def __call__(self, cache, x, place):
        return self.decode(cache, self.tf.constant(x), place)


class _Jax:
    """The values of Keras' variables are an argument. On a GPU the memory of the cache is donated."""

    def __init__(self, network, decode):
        import jax

        from bench.frameworks.jax.framework import donated

        def stateless(weights, *arguments):
            with keras.StatelessScope(state_mapping=list(zip(network.variables, weights))):
                return decode(network, *arguments)

        self.network = network
        # Compiled, as people run it for speed.
        self.decode = jax.jit(stateless, donate_argnums=donated(1))

    def start(self):
        self.weights = [variable.value for variable in self.network.variables]

    def __call__(self, cache, x, place):
        return self.decode(self.weights, cache, x, place)


class _Torch:
    """It runs eagerly."""

    def __init__(self, network, decode):
        import torch

        from bench.frameworks.torch.framework import to_device

        self.network, self.to_device = network, to_device
        self.device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        # No gradients in inference: they cost memory and time.
        self.decode = torch.inference_mode()(decode)

    def start(self):
        """The weights are Keras' variables themselves."""

    def __call__(self, cache, x, place):
        (x,) = self.to_device(self.device, x)
        return self.decode(self.network, cache, x, place)
