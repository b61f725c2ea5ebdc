"""The IMDB network in JAX: Flax NNX modules around a GRU written with lax.scan, Optax's Adam, one jitted step.

Idiomatic here: JAX has no fused GRU, so the cell is written out and scanned. The product of the inputs with their weights does not need
the state before. On a GPU it is one large matmul before the scan, and the scan is unrolled (measured on an H200: a step of 2.8 ms, and
5.1 ms otherwise). On a CPU it is taken position by position in the scan, where it stays
in the cache (measured: 13 ms for the forward pass, 27 ms otherwise). Flax's GRUCell has no recurrent bias for the gates r and z. Here
every gate has both biases, as in cuDNN; those of r and z are added once, since only their sum matters. Time comes first: scan runs along
the leading axis. The embedding's gradient is dense.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench.frameworks.jax import _mixed
from bench.frameworks.jax._flax import get_value, set_value
from bench.frameworks.jax._loop import Trained

UNITS = 100
# Positions that one pass of the scan's loop computes on a GPU, where each kernel costs its start: a divisor of 150.
UNROLLED = 10


class GRU(nnx.Module):
    """Gates stacked r, z, n along the columns. The reset gate comes after the recurrent product, as in cuDNN."""

    def __init__(self, inputs, units, rngs):
        self.project = nnx.Linear(inputs, 3 * units, rngs=rngs)
        self.recur = nnx.Linear(units, 3 * units, rngs=rngs)
        self.units = units

    def __call__(self, x):
        """x (T, N, inputs) -> the last state (N, units)."""
        gates = 2 * self.units
        w, b = get_value(self.project.kernel), get_value(self.project.bias)
        u, c = get_value(self.recur.kernel), get_value(self.recur.bias)
        b = b.at[:gates].add(c[:gates])
        early, dtype = jax.default_backend() != "cpu", x.dtype

        # The weight is cast where it is used, so that its gradient is summed over the positions in float32.
        def product(x, w, b=None):
            y = x @ w.astype(dtype)
            return y if b is None else y + b.astype(dtype)

        def cell(h, x):
            r_x, z_x, n_x = jnp.split(x if early else product(x, w, b), 3, axis=-1)
            r_h, z_h, n_h = jnp.split(product(h, u), 3, axis=-1)
            r, z = nnx.sigmoid(r_x + r_h), nnx.sigmoid(z_x + z_h)
            n = jnp.tanh(n_x + r * (n_h + c[gates:].astype(dtype)))
            return (1 - z) * n + z * h, None

        # The first state is zero and not trained.
        h = jnp.zeros((x.shape[1], self.units), dtype)
        return jax.lax.scan(cell, h, product(x, w, b) if early else x, unroll=UNROLLED if early else 1)[0]


class Network(nnx.Module):
    def __init__(self, rngs, dtype):
        self.dtype = jnp.float32 if dtype is None else dtype
        # Without a half type: its gradient sums thousands of rows of padding, and in a half type such a sum stands still.
        self.embedding = nnx.Embed(30000, 125, rngs=rngs)
        # The GRU computes in the type of its input.
        self.gru = GRU(125, UNITS, rngs)
        self.dense = nnx.Linear(UNITS, 2, dtype=dtype, dot_general=_mixed.logits_product, rngs=rngs)

    def __call__(self, x):
        # The output of the last position, which may be padding.
        return self.dense(self.gru(self.embedding(x.T).astype(self.dtype)))


class Training(Trained):
    def __init__(self, setup):
        super().__init__(setup, lambda: Network(nnx.Rngs(setup.seed), _mixed.dtype(setup)))

    def fill(self, parameters):
        for name, (variable, transposed) in variables(self.parameters).items():
            set_value(variable, jnp.array(parameters[name].T if transposed else parameters[name]))

    def canonical(self, tree):
        """Flax's parameters or their gradients -> canonical names and layouts."""
        arrays = {}
        for name, (variable, transposed) in variables(tree).items():
            array = np.asarray(get_value(variable))
            arrays[name] = array.T if transposed else array
        return arrays


def variables(tree):
    """Canonical name -> (Flax's variable in `tree`, whether it is transposed)."""
    return {
        "embedding": (tree["embedding"]["embedding"], False),
        "gru.w": (tree["gru"]["project"]["kernel"], True),
        "gru.b": (tree["gru"]["project"]["bias"], False),
        "gru.u": (tree["gru"]["recur"]["kernel"], True),
        "gru.c": (tree["gru"]["recur"]["bias"], False),
        "dense.w": (tree["dense"]["kernel"], True),
        "dense.b": (tree["dense"]["bias"], False),
    }
