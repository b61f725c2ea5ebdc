"""The IMDB network in JAX: Flax NNX modules around a GRU written with lax.scan, Optax's Adam, one jitted step.

Idiomatic here: JAX has no fused GRU (C1: cuDNN no), so the cell is written out and scanned. What does not wait for the
last state, the product of the inputs with their weights, is one large matmul before the scan on a GPU; on a CPU each position's
is taken inside, where it stays in the cache (measured: 13 ms for the forward pass, 27 ms otherwise). Flax's own GRUCell
has no recurrent bias on the gates r and z, which changes no function but leaves out parameters; here both biases are
there, as cuDNN has them (C8), and added up once for the gates that only see their sum. Time comes first inside,
since scan walks the leading axis. The embedding's gradient is dense.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from bench.frameworks.jax import _mixed
from bench.frameworks.jax.framework import donated, started

UNITS = 100


class GRU(nnx.Module):
    """Gates stacked r, z, n along the columns; the reset gate comes after the recurrent product."""

    def __init__(self, inputs, units, rngs):
        self.project = nnx.Linear(inputs, 3 * units, rngs=rngs)
        self.recur = nnx.Linear(units, 3 * units, rngs=rngs)
        self.units = units

    def __call__(self, x):
        """x (T, N, inputs) -> the last state (N, units)."""
        gates = 2 * self.units
        w, b = self.project.kernel[...], self.project.bias[...]
        u, c = self.recur.kernel[...], self.recur.bias[...]
        b = b.at[:gates].add(c[:gates])
        early, dtype = jax.default_backend() != "cpu", x.dtype

        def product(
            x, w, b=None
        ):  # cast where it is used, so that a weight's gradient adds the positions up in float32
            y = x @ w.astype(dtype)
            return y if b is None else y + b.astype(dtype)

        def cell(h, x):
            r_x, z_x, n_x = jnp.split(x if early else product(x, w, b), 3, axis=-1)
            r_h, z_h, n_h = jnp.split(product(h, u), 3, axis=-1)
            r, z = nnx.sigmoid(r_x + r_h), nnx.sigmoid(z_x + z_h)
            n = jnp.tanh(n_x + r * (n_h + c[gates:].astype(dtype)))
            return (1 - z) * n + z * h, None

        h = jnp.zeros((x.shape[1], self.units), dtype)  # C6: zero, and no parameter
        return jax.lax.scan(cell, h, product(x, w, b) if early else x)[0]


class Network(nnx.Module):
    def __init__(self, rngs, dtype):
        self.embedding = nnx.Embed(30000, 125, dtype=dtype, rngs=rngs)
        self.gru = GRU(125, UNITS, rngs)  # computes in the type of its input
        self.dense = nnx.Linear(UNITS, 2, dtype=dtype, dot_general=_mixed.logits_product, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.gru(self.embedding(x.T)))  # C5: the state after position 150, padding included


optimizer = optax.adam(0.001, b1=0.9, b2=0.999, eps=1e-8)  # C9: every constant set; eps is outside the square root


class Training:
    def __init__(self, setup):
        self.structure, self.parameters = nnx.split(Network(nnx.Rngs(setup.seed), _mixed.dtype(setup)))
        self.optimizer = _mixed.optimizer(setup, optimizer)
        self.state = self.optimizer.init(self.parameters)

    def loss(self, parameters, x, y):
        logits = nnx.merge(self.structure, parameters)(x).astype("float32")
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(self, parameters, state, x, y):
        return _mixed.value_and_grad(self.loss, state)(parameters, x, y)

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=donated(1, 2))
    def train_step(self, parameters, state, x, y):
        (loss, _), gradients = self.gradients(parameters, state, x, y)
        updates, state = self.optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    @functools.partial(jax.jit, static_argnums=0)
    def logits(self, parameters, x):
        return nnx.merge(self.structure, parameters)(x).astype("float32")

    def load(self, parameters):
        for name, (variable, transposed) in variables(self.parameters).items():
            value = parameters[name].T if transposed else parameters[name]
            variable[...] = jnp.array(value)
        self.state = self.optimizer.init(self.parameters)

    def read(self):
        return canonical(self.parameters)

    def inputs(self, x, y):
        return x, y

    def probe(self, x, y):
        (loss, logits), gradients = self.gradients(self.parameters, self.state, x, y)
        return np.asarray(logits), float(loss), canonical(gradients)

    def step(self, x, y):
        self.parameters, self.state, loss = self.train_step(self.parameters, self.state, x, y)
        return started(loss)

    def skipped(self):
        return _mixed.skipped(self.state)

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        return np.asarray(self.logits(self.parameters, x))


def variables(tree):
    """Canonical name -> (Flax's variable in `tree`, whether it is the transpose)."""
    return {
        "embedding": (tree["embedding"]["embedding"], False),
        "gru.w": (tree["gru"]["project"]["kernel"], True),
        "gru.b": (tree["gru"]["project"]["bias"], False),
        "gru.u": (tree["gru"]["recur"]["kernel"], True),
        "gru.c": (tree["gru"]["recur"]["bias"], False),
        "dense.w": (tree["dense"]["kernel"], True),
        "dense.b": (tree["dense"]["bias"], False),
    }


def canonical(tree):
    """Flax's parameters or their gradients -> canonical names and layouts."""
    found = {}
    for name, (variable, transposed) in variables(tree).items():
        value = np.asarray(variable[...])
        found[name] = value.T if transposed else value
    return found
