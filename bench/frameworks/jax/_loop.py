"""The training loop of a Flax NNX module with Adam: load, read, inputs, probe, step, predict. cnn_cifar10.py has all of it in one file."""

import functools

import jax
import numpy as np
import optax
from flax import nnx

from bench import contract
from bench.frameworks.jax import _mixed
from bench.frameworks.jax.framework import donated, started, undrawn

# Adam's constants are explicit: defaults differ among frameworks. eps is outside the square root.
optimizer = optax.adam(0.001, b1=0.9, b2=0.999, eps=1e-8)


class Trained(contract.Training):
    """`network()` makes the module. A subclass gives fill(parameters), which sets self.parameters, and canonical(tree), for the parameters
    or their gradients; `own` is its optimiser.
    """

    def __init__(self, setup, network, own=optimizer):
        self.structure, self.parameters = undrawn(network)
        self.optimizer = _mixed.optimizer(setup, own)
        self.state = self.optimizer.init(self.parameters)

    def loss(self, parameters, x, y):
        logits = nnx.merge(self.structure, parameters)(x).astype("float32")
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(self, parameters, state, x, y):
        return _mixed.value_and_grad(self.loss, state)(parameters, x, y)

    # Compiled, as people run it for speed.
    @functools.partial(jax.jit, static_argnums=0, donate_argnums=donated(1, 2))
    def train_step(self, parameters, state, x, y):
        (loss, _), gradients = self.gradients(parameters, state, x, y)
        updates, state = self.optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    # No gradients in evaluation: they cost memory and time.
    @functools.partial(jax.jit, static_argnums=0)
    def logits(self, parameters, x):
        return nnx.merge(self.structure, parameters)(x).astype("float32")

    def load(self, parameters):
        self.fill(parameters)
        self.state = self.optimizer.init(self.parameters)

    def read(self):
        return self.canonical(self.parameters)

    def probe(self, x, y):
        (loss, logits), gradients = self.gradients(self.parameters, self.state, x, y)
        return np.asarray(logits), float(loss), self.canonical(gradients)

    def step(self, x, y):
        self.parameters, self.state, loss = self.train_step(self.parameters, self.state, x, y)
        return started(loss)

    def skipped(self):
        return _mixed.skipped(self.state)

    def updates(self):
        return int(optax.tree_utils.tree_get(self.state, "count"))

    def predict(self, x):
        return np.asarray(self.logits(self.parameters, x))
