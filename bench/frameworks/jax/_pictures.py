"""The training loop of the deep networks on pictures: a Flax NNX module, split into structure, parameters and running statistics."""

import functools

import jax
import numpy as np
import optax
from flax import nnx

from bench import contract
from bench.frameworks.jax import parallel
from bench.frameworks.jax._flax import flat_state, get_value, merge_copy, set_value
from bench.frameworks.jax.framework import donated, started


class Trained(contract.Training):
    """A subclass gives loss(logits, y) and own_path(name, dimensions), a variable's path.

    Every device computes its own part of the batch (shard_map). jit alone would normalise over the whole batch.
    """

    def __init__(self, setup, network, optimizer, rate):
        """network(running, rngs): a module that normalises with the running statistics, or with the batch's and moves the running ones."""
        self.devices, self.optimizer, self.rate = setup.devices, optimizer, rate
        # Shapes only: load() brings the values (Flax's guide to checkpoints).
        self.network = nnx.eval_shape(lambda: network(False, nnx.Rngs(setup.seed)))
        self.evaluating = nnx.graphdef(nnx.eval_shape(lambda: network(True, nnx.Rngs(setup.seed))))
        self.structure = self.parameters = self.statistics = self.state = None
        self.names = {}

    def set_rate(self, rate):
        self.rate = rate

    def load(self, parameters):
        self.names = {name: self.own_path(name, value.ndim) for name, value in parameters.items()}
        for name, path in self.names.items():
            set_value(functools.reduce(child, path, self.network), jax.numpy.array(to_flax(parameters[name])))
        self.structure, self.parameters, self.statistics = nnx.split(self.network, nnx.Param, nnx.BatchStat)
        self.state = self.optimizer.init(self.parameters)

    def read(self):
        return self.canonical(self.parameters, self.statistics)

    def inputs(self, x, y):
        # A permutation: exchanging axes 1 and 3 would also transpose the picture.
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y

    def forward(self, parameters, statistics, x, y):
        network = merge_copy(self.structure, parameters, statistics)
        logits = network(x)
        return self.loss(logits, y), (logits, nnx.state(network, nnx.BatchStat))

    def part(self, parameters, statistics, x, y):
        """Loss, logits, running statistics and gradients of one device's part. Of several devices: their means, but for the logits."""
        backward = jax.value_and_grad(self.forward, has_aux=True)
        (loss, (logits, moved)), gradients = backward(parameters, statistics, x, y)
        if self.devices > 1:
            loss, moved, gradients = jax.lax.pmean((loss, moved, gradients), "batch")
        return loss, logits, moved, gradients

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(self, *arguments):
        if self.devices == 1:
            return self.part(*arguments)
        inputs, outputs = (False, False, True, True), (False, True, False, False)
        return parallel.of_each_part(self.part, self.devices, inputs, outputs)(*arguments)

    # Compiled, as people run it for speed.
    @functools.partial(jax.jit, static_argnums=0, donate_argnums=donated(1, 2, 3))
    def train_step(self, parameters, statistics, state, rate, x, y):
        loss, _, statistics, gradients = self.gradients(parameters, statistics, x, y)
        updates, state = self.optimizer.update(gradients, state, parameters)
        updates = jax.tree.map(lambda v: -rate * v, updates)
        return optax.apply_updates(parameters, updates), statistics, state, loss

    # Evaluation uses the running statistics. No gradients in evaluation: they cost memory and time.
    @functools.partial(jax.jit, static_argnums=0)
    def logits(self, parameters, statistics, x):
        return nnx.merge(self.evaluating, parameters, statistics)(x)

    def probe(self, x, y):
        loss, logits, _, gradients = self.gradients(self.parameters, self.statistics, x, y)
        return np.asarray(logits), float(loss), self.canonical(gradients)

    def step(self, x, y):
        state = self.parameters, self.statistics, self.state
        self.parameters, self.statistics, self.state, loss = self.train_step(*state, self.rate, x, y)
        return started(loss)

    def predict(self, x):
        return np.asarray(self.logits(self.parameters, self.statistics, x))

    def canonical(self, *trees):
        """Flax's variables, or their gradients -> canonical names and layouts."""
        variables = {}
        for tree in trees:
            flat = flat_state(tree)
            variables.update((name, flat[path]) for name, path in self.names.items() if path in flat)
        return {name: from_flax(np.asarray(get_value(variable))) for name, variable in variables.items()}


def child(parent, part):
    """The child of a module or list: an attribute, or an item."""
    return parent[part] if isinstance(part, int) else getattr(parent, part)


def to_flax(value):
    """A canonical parameter -> Flax's: kernels (kh, kw, in, out), dense (in, out)."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def from_flax(value):
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
