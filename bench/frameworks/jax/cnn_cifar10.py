"""The CIFAR-10 network in JAX: a Flax NNX module, Optax's momentum, and the training step as one jitted function.

Idiomatic here: the module is split once into its structure and its parameters. The step is a pure function of the parameters and the
optimiser's state (Flax's "functional training loop"), so Python only makes one call for each step. On a GPU parameters and state are
donated: XLA updates them in place. Flax convolves N, H, W, C; on a GPU XLA chooses the kernels' own layout. The images are permuted once,
before training. The first dense layer's weights are permuted instead of its input.
"""

import functools

import jax
import numpy as np
import optax
from flax import nnx

from bench import contract
from bench.frameworks.jax import _mixed
from bench.frameworks.jax._flax import get_value, set_value
from bench.frameworks.jax.framework import donated, started, undrawn

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


class Network(nnx.Module):
    def __init__(self, rngs, dtype):
        # Padding is explicit: defaults differ among frameworks.
        def conv(inputs, outputs):
            return nnx.Conv(inputs, outputs, kernel_size=(3, 3), padding=1, dtype=dtype, rngs=rngs)

        self.conv1, self.conv2 = conv(3, 50), conv(50, 50)
        self.conv3, self.conv4 = conv(50, 100), conv(100, 100)
        self.dense1 = nnx.Linear(6400, 512, dtype=dtype, rngs=rngs)
        self.dense2 = nnx.Linear(512, 10, dtype=dtype, dot_general=_mixed.logits_product, rngs=rngs)
        self.dropout1, self.dropout2, self.dropout3 = nnx.Dropout(0.25), nnx.Dropout(0.25), nnx.Dropout(0.5)

    def __call__(self, x, rngs=None):
        """Dropout only in training: where `rngs` is given."""
        off = rngs is None
        x = nnx.relu(self.conv1(x))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = nnx.relu(max_pool(self.conv2(x)))
        x = self.dropout1(x, deterministic=off, rngs=rngs)
        x = nnx.relu(self.conv3(x))
        x = nnx.relu(max_pool(self.conv4(x)))
        x = self.dropout2(x, deterministic=off, rngs=rngs)
        x = nnx.relu(self.dense1(x.reshape(len(x), -1)))
        x = self.dropout3(x, deterministic=off, rngs=rngs)
        return self.dense2(x)


def max_pool(x):
    # Flax's default stride is 1.
    return nnx.max_pool(x, (2, 2), strides=(2, 2))


# Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov.
optimizer = optax.sgd(learning_rate=0.01, momentum=0.9)


class Training(contract.Training):
    def __init__(self, setup):
        self.key = jax.random.key(setup.seed) if setup.training else None
        self.structure, self.parameters = undrawn(lambda: Network(nnx.Rngs(setup.seed), _mixed.dtype(setup)))
        self.optimizer = _mixed.optimizer(setup, optimizer)
        self.state = self.optimizer.init(self.parameters)

    def loss(self, parameters, x, y, key):
        rngs = None if key is None else nnx.Rngs(dropout=key)
        logits = nnx.merge(self.structure, parameters)(x, rngs).astype("float32")
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(self, parameters, state, x, y, key):
        return _mixed.value_and_grad(self.loss, state)(parameters, x, y, key)

    @functools.partial(jax.jit, static_argnums=0)
    def update(self, parameters, state, gradients):
        updates, state = self.optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    # Compiled as one function, as people run it for speed.
    @functools.partial(jax.jit, static_argnums=0, donate_argnums=donated(1, 2, 3))
    def train_step(self, parameters, state, key, x, y):
        key, now = (None, None) if key is None else jax.random.split(key)
        (loss, _), gradients = self.gradients(parameters, state, x, y, now)
        return self.update(parameters, state, gradients) + (key, loss)

    # No gradients in evaluation: they cost memory and time.
    @functools.partial(jax.jit, static_argnums=0)
    def logits(self, parameters, x):
        return nnx.merge(self.structure, parameters)(x).astype("float32")

    def load(self, parameters):
        for name in LAYERS:
            set_value(self.parameters[name]["kernel"], jax.numpy.array(to_flax(name, parameters[name + ".w"])))
            set_value(self.parameters[name]["bias"], jax.numpy.array(parameters[name + ".b"]))
        self.state = self.optimizer.init(self.parameters)

    def read(self):
        return canonical(self.parameters)

    def inputs(self, x, y):
        # A permutation: exchanging axes 1 and 3 would also transpose the picture.
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y

    def probe(self, x, y):
        (loss, logits), gradients = self.gradients(self.parameters, self.state, x, y, self.key)
        return np.asarray(logits), float(loss), canonical(gradients)

    def masks(self):
        # On a GPU the step takes the key itself.
        return None if self.key is None else np.array(jax.random.key_data(self.key))

    def redraw(self, masks):
        self.key = jax.random.split(jax.random.wrap_key_data(masks))[1]

    def step(self, x, y):
        train_step = self.train_step
        if self.key is None:
            # Without dropout a step is checked and never measured. Python calls its two parts, of which `probe` compiled the larger one.
            train_step = functools.partial(self.train_step.__wrapped__, self)
        self.parameters, self.state, self.key, loss = train_step(self.parameters, self.state, self.key, x, y)
        return started(loss)

    def skipped(self):
        return _mixed.skipped(self.state)

    def predict(self, x):
        return np.asarray(self.logits(self.parameters, x))


def to_flax(name, w):
    """Canonical weights -> Flax's: kernels (kh, kw, in, out); dense (in, out), the first one's inputs in H, W, C order."""
    if name.startswith("conv"):
        return w.transpose(2, 3, 1, 0)
    if name == "dense1":
        w = w.reshape(512, 100, 8, 8).transpose(0, 2, 3, 1).reshape(512, 6400)
    return w.T


def canonical(tree):
    """Flax's parameters or their gradients -> canonical names and layouts."""
    arrays = {}
    for name in LAYERS:
        w, b = np.asarray(get_value(tree[name]["kernel"])), np.asarray(get_value(tree[name]["bias"]))
        if name.startswith("conv"):
            w = w.transpose(3, 2, 0, 1)
        else:
            w = w.T
            if name == "dense1":
                w = w.reshape(512, 8, 8, 100).transpose(0, 3, 1, 2).reshape(512, 6400)
        arrays[name + ".w"], arrays[name + ".b"] = w, b
    return arrays
