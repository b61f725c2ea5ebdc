"""ResNet-50 trained in JAX: the features' network and a Linear, Optax's transformations in a chain, the step as one jitted function.

Idiomatic here: the module is split once into its structure, its parameters and its running statistics, and the step is a pure function
of the two and of the optimiser's state (NNX's functional API); a normalisation of momentum 0.9 moves the statistics a tenth of the way,
the variance biased. The learning rate is an argument of the step, so that a change compiles nothing. Of several devices each computes
its own part (shard_map), since jit alone would normalise over the whole batch. Flax convolves N, H, W, C (A1).
"""

import functools

import jax
import numpy as np
import optax
from flax import nnx

from bench.frameworks.jax import parallel, resnet50_features
from bench.frameworks.jax.framework import donated, started
from bench.frameworks.jax.pictures import Trained, to_flax
from bench.frameworks.jax.resnet50_features import ATTRIBUTES, child


class Network(resnet50_features.Network):
    def __init__(self, running, rngs):
        super().__init__(running, rngs)
        self.fc = nnx.Linear(2048, 1000, rngs=rngs)

    def __call__(self, x):
        return self.fc(super().__call__(x))


# A10: v <- 0.9 v + (g + 1e-4 w); the step is -rate v
optimizer = optax.chain(optax.add_decayed_weights(1e-4), optax.trace(decay=0.9))


class Training(Trained):
    def __init__(self, setup):
        self.devices = setup.devices
        # Only the shapes: load() brings the values (Flax's guide to checkpoints).
        self.network = nnx.eval_shape(lambda: Network(False, nnx.Rngs(setup.seed)))
        self.evaluating = nnx.graphdef(nnx.eval_shape(lambda: Network(True, nnx.Rngs(setup.seed))))
        self.structure = self.parameters = self.statistics = self.state = None
        self.names, self.rate = {}, 0.0125

    def set_rate(self, rate):
        self.rate = rate

    def loss(self, parameters, statistics, x, y):
        # copies: Flax lets only the trace that made a variable move it
        network = nnx.merge(self.structure, parameters, statistics, copy=True)
        logits = network(x)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()  # A7: one softmax
        return loss, (logits, nnx.state(network, nnx.BatchStat))

    def part(self, parameters, statistics, x, y):
        """One device's: its own loss, logits, statistics and gradients; the mean of all but the logits where there are several."""
        (loss, (logits, moved)), gradients = jax.value_and_grad(self.loss, has_aux=True)(parameters, statistics, x, y)
        if self.devices > 1:
            loss, moved, gradients = jax.lax.pmean((loss, moved, gradients), "batch")
        return loss, logits, moved, gradients

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(self, *arguments):
        if self.devices == 1:
            return self.part(*arguments)
        of_each = parallel.of_each_part(
            self.part, self.devices, (False, False, True, True), (False, True, False, False)
        )
        return of_each(*arguments)

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=donated(1, 2, 3))
    def train_step(self, parameters, statistics, state, rate, x, y):
        loss, _, statistics, gradients = self.gradients(parameters, statistics, x, y)
        updates, state = optimizer.update(gradients, state, parameters)
        updates = jax.tree.map(lambda v: -rate * v, updates)
        return optax.apply_updates(parameters, updates), statistics, state, loss

    @functools.partial(jax.jit, static_argnums=0)
    def logits(self, parameters, statistics, x):
        return nnx.merge(self.evaluating, parameters, statistics)(x)

    def load(self, parameters):
        self.names = {name: own_path(name, value.ndim) for name, value in parameters.items()}
        for name, value in parameters.items():
            module = functools.reduce(child, name.split(".")[:-1], self.network)
            getattr(module, self.names[name][-1]).set_value(jax.numpy.array(to_flax(value)))
        self.structure, self.parameters, self.statistics = nnx.split(self.network, nnx.Param, nnx.BatchStat)
        self.state = optimizer.init(self.parameters)

    def probe(self, x, y):
        loss, logits, _, gradients = self.gradients(self.parameters, self.statistics, x, y)
        return np.asarray(logits), float(loss), self.canonical(gradients)

    def step(self, x, y):
        state = self.parameters, self.statistics, self.state
        self.parameters, self.statistics, self.state, loss = self.train_step(*state, self.rate, x, y)
        return started(loss)


def attribute(name, dimensions):
    """What Flax calls the parameter of a module."""
    end = name.rsplit(".", 1)[1]
    if dimensions > 1:
        return "kernel"
    return end if name.startswith("fc.") else ATTRIBUTES[end]


def own_path(name, dimensions):
    """torchvision's layer1.0.bn1.weight -> ("layer1", "layers", 0, "bn1", "scale"): a Sequential keeps a list."""
    path = []
    for part in name.split(".")[:-1]:
        path += ["layers", int(part)] if part.isdigit() else [part]
    return tuple(path) + (attribute(name, dimensions),)
