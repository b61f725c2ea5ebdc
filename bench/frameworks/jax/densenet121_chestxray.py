"""DenseNet-121 in JAX: Flax NNX modules under the names of the weight files, Optax's Adam, the training step as one jitted function.

Idiomatic here: the module is split once into its structure, its parameters and its running statistics, and the step is a pure function
of the two and of the optimiser's state (NNX's functional API); the step hands the moved statistics back. A normalisation of momentum 0.9
moves them a tenth of the way, the variance biased. Flax convolves N, H, W, C; on a GPU XLA chooses the kernels' own layout (A1).
"""

import functools

import jax
import numpy as np
import optax
from flax import nnx

from bench.frameworks.jax.framework import donated, started
from bench.frameworks.jax.pictures import Trained, to_flax

LAYERS = (6, 12, 24, 16)
GROWTH = 32


def conv(inputs, outputs, size, stride, pad, rngs):
    # A15: said in numbers, for with stride 2 "SAME" pads one row less before than after, or none
    return nnx.Conv(inputs, outputs, (size, size), stride, padding=[(pad, pad)] * 2, use_bias=False, rngs=rngs)


def norm(channels, rngs):
    return nnx.BatchNorm(channels, momentum=0.9, epsilon=1e-5, rngs=rngs)


class DenseLayer(nnx.Module):
    def __init__(self, inputs, rngs):
        self.norm1, self.conv1 = norm(inputs, rngs), conv(inputs, 4 * GROWTH, 1, 1, 0, rngs)
        self.norm2, self.conv2 = norm(4 * GROWTH, rngs), conv(4 * GROWTH, GROWTH, 3, 1, 1, rngs)

    def __call__(self, x, running):
        new = self.conv1(nnx.relu(self.norm1(x, use_running_average=running)))
        new = self.conv2(nnx.relu(self.norm2(new, use_running_average=running)))
        return jax.numpy.concatenate([x, new], axis=-1)


class DenseBlock(nnx.Module):
    def __init__(self, inputs, count, rngs):
        self.count = count
        for index in range(count):
            setattr(self, "denselayer%d" % (index + 1), DenseLayer(inputs + index * GROWTH, rngs))

    def __call__(self, x, running):
        for index in range(self.count):
            x = getattr(self, "denselayer%d" % (index + 1))(x, running)
        return x


class Transition(nnx.Module):
    def __init__(self, inputs, rngs):
        self.norm, self.conv = norm(inputs, rngs), conv(inputs, inputs // 2, 1, 1, 0, rngs)

    def __call__(self, x, running):
        x = self.conv(nnx.relu(self.norm(x, use_running_average=running)))
        return nnx.avg_pool(x, (2, 2), strides=(2, 2))


class Features(nnx.Module):
    def __init__(self, rngs):
        self.conv0, self.norm0 = conv(3, 64, 7, 2, 3, rngs), norm(64, rngs)
        channels = 64
        for block, count in enumerate(LAYERS, 1):
            setattr(self, "denseblock%d" % block, DenseBlock(channels, count, rngs))
            channels += count * GROWTH
            if block < len(LAYERS):
                setattr(self, "transition%d" % block, Transition(channels, rngs))
                channels //= 2
        self.norm5 = norm(channels, rngs)

    def __call__(self, x, running):
        x = nnx.relu(self.norm0(self.conv0(x), use_running_average=running))
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))  # A14; the border is filled with -inf
        x = self.transition1(self.denseblock1(x, running), running)
        x = self.transition2(self.denseblock2(x, running), running)
        x = self.transition3(self.denseblock3(x, running), running)
        x = nnx.relu(self.norm5(self.denseblock4(x, running), use_running_average=running))
        return x.mean((1, 2))


class Network(nnx.Module):
    def __init__(self, rngs):
        self.features = Features(rngs)
        self.classifier = nnx.Linear(1024, 14, rngs=rngs)

    def __call__(self, x, running):
        """running: whether to normalise with the running statistics (D6), or with the batch's, which move them."""
        return self.classifier(self.features(x, running))


# what a weight file calls the parameters of a module -> what Flax does, by their dimensions
ATTRIBUTES = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}

optimizer = optax.adam(1e-4, b1=0.9, b2=0.999, eps=1e-8)  # eps is outside the square root


class Training(Trained):
    def __init__(self, setup):
        # Only the shapes: load() brings the values (Flax's guide to checkpoints).
        self.network = nnx.eval_shape(lambda: Network(nnx.Rngs(setup.seed)))
        self.structure = self.parameters = self.statistics = self.state = None
        self.names = {}

    def loss(self, parameters, statistics, x, y):
        # copies: Flax lets only the trace that made a variable move it
        network = nnx.merge(self.structure, parameters, statistics, copy=True)
        logits = network(x, running=False)
        loss = optax.sigmoid_binary_cross_entropy(logits, y).mean()  # A7: from logits
        return loss, (logits, nnx.state(network, nnx.BatchStat))

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(self, parameters, statistics, x, y):
        return jax.value_and_grad(self.loss, has_aux=True)(parameters, statistics, x, y)

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=donated(1, 2, 3))
    def train_step(self, parameters, statistics, state, x, y):
        (loss, (_, statistics)), gradients = self.gradients(parameters, statistics, x, y)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), statistics, state, loss

    @functools.partial(jax.jit, static_argnums=0)
    def logits(self, parameters, statistics, x):
        return nnx.merge(self.structure, parameters, statistics)(x, running=True)

    def load(self, parameters):
        self.names = {name: own_path(name, value.ndim) for name, value in parameters.items()}
        for name, path in self.names.items():
            functools.reduce(getattr, path, self.network).set_value(jax.numpy.array(to_flax(parameters[name])))
        self.structure, self.parameters, self.statistics = nnx.split(self.network, nnx.Param, nnx.BatchStat)
        self.state = optimizer.init(self.parameters)

    def probe(self, x, y):
        (loss, (logits, _)), gradients = self.gradients(self.parameters, self.statistics, x, y)
        return np.asarray(logits), float(loss), self.canonical(gradients)

    def step(self, x, y):
        state = self.parameters, self.statistics, self.state
        self.parameters, self.statistics, self.state, loss = self.train_step(*state, x, y)
        return started(loss)


def own_path(name, dimensions):
    """torchvision's features.norm0.weight -> ("features", "norm0", "scale")."""
    *path, end = name.split(".")
    vector = ATTRIBUTES[end] if path[-1] != "classifier" else end
    return tuple(path) + ("kernel" if dimensions > 1 else vector,)
