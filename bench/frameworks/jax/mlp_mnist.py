"""The MNIST perceptron in JAX: a Flax NNX module, Optax's Adam, the whole set as one batch, the training step as one jitted function.

Idiomatic here: the module is split once into its structure and its parameters. The step is a pure function of the parameters and the
optimiser's state. Flax keeps a Linear's weight as (in, out).
"""

from flax import nnx

from bench.frameworks.jax import _mixed
from bench.frameworks.jax._mnist import Trained


class Network(nnx.Module):
    def __init__(self, rngs, dtype):
        self.dense1 = nnx.Linear(784, 32, dtype=dtype, rngs=rngs)
        self.dense2 = nnx.Linear(32, 10, dtype=dtype, dot_general=_mixed.logits_product, rngs=rngs)

    def __call__(self, x):
        return self.dense2(nnx.relu(self.dense1(x)))


class Training(Trained):
    LAYERS = ("dense1", "dense2")

    def __init__(self, setup):
        super().__init__(setup, lambda: Network(nnx.Rngs(setup.seed), _mixed.dtype(setup)))

    def inputs(self, x, y):
        return super().inputs(x.reshape(len(x), 784), y)

    def to_flax(self, name, w):
        return w.T

    from_flax = to_flax
