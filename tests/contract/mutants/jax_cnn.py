"""Mistakes in the CIFAR-10 network in JAX."""

import functools

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from bench.frameworks.jax import cnn_cifar10
from bench.frameworks.jax._flax import get_value, set_value
from tests.contract.mutants import anywhere, roundings
from tests.contract.mutants.registry import Planted

cnn = Planted("jax", "cnn-cifar10")
Training = cnn_cifar10.Training
cnn.of_any_framework(Training, anywhere.EVERYWHERE)


class WithDropout(Training):
    """Another rate of dropout in each of the three places."""

    RATES = 0.25, 0.25, 0.5

    def __init__(self, setup):
        super().__init__(setup)
        network = nnx.merge(self.structure, self.parameters)
        for name, rate in zip(("dropout1", "dropout2", "dropout3"), self.RATES, strict=True):
            getattr(network, name).rate = rate
        self.structure, self.parameters = nnx.split(network)


@cnn.slow_rewrite
class OneByOne(Training):
    """The gradient by a map over the pictures, and its mean: another order of summation."""

    def loss(self, parameters, x, y, key):
        if key is not None:
            return super().loss(parameters, x, y, key)
        logits = jnp.concatenate([nnx.merge(self.structure, parameters)(part) for part in jnp.split(x, 4)])
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits


@cnn.mistake("dropout")
class GluonsDropout(WithDropout):
    """Dropout 0.25 in all three places, as Gluon's example had it."""

    RATES = 0.25, 0.25, 0.25


@cnn.mistake("dropout", slow=True)
class TheSameKeyInEveryStep(Training):
    """The key of dropout is not advanced: the same mask in every step."""

    def step(self, x, y):
        key = self.key
        loss = super().step(x, y)
        self.key = key
        return loss

    def loss(self, parameters, x, y, key):
        return super().loss(parameters, x, y, None if key is None else jax.random.key(1))


@cnn.mistake("dropout", slow=True)
class NoDropout(Training):
    """Dropout is deterministic in training too: the key is not handed on."""

    def loss(self, parameters, x, y, key):
        return super().loss(parameters, x, y, None)


class ConvolutionsIn(Training):
    """The convolutions, and only they, compute in a half type where dropout is on."""

    TYPE = jnp.bfloat16

    def loss(self, parameters, x, y, key):
        if key is None:
            return super().loss(parameters, x, y, key)
        network = nnx.merge(self.structure, parameters)
        for name in ("conv1", "conv2", "conv3", "conv4"):
            setattr(network, name, functools.partial(self.halved, getattr(network, name)))
        logits = network(x, nnx.Rngs(dropout=key)).astype("float32")
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

    def halved(self, layer, x):
        layer.dtype = self.TYPE
        return layer(x).astype("float32")


@cnn.mistake(
    "precision",
    not_caught="On a CPU XLA leaves out roundings to bfloat16: the gradients have the digits of float32. It gains no time.",
    slow=True,
)
class ConvolutionsInHalfInTraining(ConvolutionsIn):
    """The convolutions, and only they, compute in bfloat16 where dropout is on."""


@cnn.mistake("precision", slow=True)
class ConvolutionsInFloat16InTraining(ConvolutionsIn):
    """The convolutions, and only they, compute in float16 where dropout is on."""

    TYPE = jnp.float16


@cnn.mistake("precision", slow=True)
class OneGradientInHalfInTraining(Training):
    """The gradient of the fourth convolution's weights is rounded to bfloat16 where dropout is on."""

    @functools.partial(jax.jit, static_argnums=0)
    def update(self, parameters, state, gradients):
        if self.key is not None:
            kernel = gradients["conv4"]["kernel"]
            # XLA leaves out a cast to a half type and back.
            set_value(kernel, jax.lax.reduce_precision(get_value(kernel), 8, 7))
        return Training.update.__wrapped__(self, parameters, state, gradients)


class WithRounding(Training):
    """The gradient of one layer's weights is rounded where dropout is on."""

    @functools.partial(jax.jit, static_argnums=0)
    def update(self, parameters, state, gradients):
        if self.key is not None:
            kernel = gradients[self.LAYER]["kernel"]
            set_value(kernel, jax.lax.reduce_precision(get_value(kernel), *self.TYPE[1:]))
        return Training.update.__wrapped__(self, parameters, state, gradients)


# Those of the dense layers are planted in the others only: XLA compiles each class anew.
roundings.plant(cnn, WithRounding, roundings.LAYERS[:4])
