"""The training loop of both networks on MNIST: one jitted step of a Flax NNX module. Batches lie on the device before the first step."""

import functools

import jax
import numpy as np
import optax
from flax import nnx

from bench import contract
from bench.frameworks.jax import _mixed
from bench.frameworks.jax.framework import donated, started

# Adam's constants are explicit: defaults differ among frameworks. eps is outside the square root.
optimizer = optax.adam(0.001, b1=0.9, b2=0.999, eps=1e-8)


class Trained(contract.Training):
    """A subclass gives LAYERS, and to_flax(name, w) and from_flax(name, w), which change the layout of a layer's weight."""

    def __init__(self, setup, network):
        self.structure, self.parameters = nnx.split(network)
        self.optimizer = _mixed.optimizer(setup, optimizer)
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
        for name in self.LAYERS:
            self.parameters[name]["kernel"][...] = jax.numpy.array(self.to_flax(name, parameters[name + ".w"]))
            self.parameters[name]["bias"][...] = jax.numpy.array(parameters[name + ".b"])
        self.state = self.optimizer.init(self.parameters)

    def read(self):
        return self.canonical(self.parameters)

    def inputs(self, x, y):
        return jax.device_put(x), jax.device_put(y)

    def probe(self, x, y):
        (loss, logits), gradients = self.gradients(self.parameters, self.state, x, y)
        return np.asarray(logits), float(loss), self.canonical(gradients)

    def step(self, x, y):
        self.parameters, self.state, loss = self.train_step(self.parameters, self.state, x, y)
        return started(loss)

    def skipped(self):
        return _mixed.skipped(self.state)

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        return np.asarray(self.logits(self.parameters, x))

    def canonical(self, tree):
        """Flax's parameters or their gradients -> canonical names and layouts."""
        arrays = {}
        for name in self.LAYERS:
            arrays[name + ".w"] = self.from_flax(name, np.asarray(tree[name]["kernel"][...]))
            arrays[name + ".b"] = np.asarray(tree[name]["bias"][...])
        return arrays
