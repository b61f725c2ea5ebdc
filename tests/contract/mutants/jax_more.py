"""Further mistakes in JAX's adapters: what dropout hides, digits, rows, and the smallest omissions."""

import functools

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from bench.frameworks.jax import cnn_cifar10, gru_imdb, mlp_mnist
from tests.contract.mutants import omissions, readings
from tests.contract.mutants.jax_cnn import WithDropout
from tests.contract.mutants.jax_gru import WORDS, WithOptimizer
from tests.contract.mutants.registry import Planted

cnn, gru, mlp = (Planted("jax", name, slow=True) for name in ("cnn-cifar10", "gru-imdb", "mlp-mnist"))
Cnn, Gru, Mlp = cnn_cifar10.Training, gru_imdb.Training, mlp_mnist.Training
# XLA compiles each class anew: of what needs only the contract's methods JAX has those that end early, and the other frameworks have all.
gru.of_any_framework(Gru, readings.OF_IDS + readings.OF_IDS_TOO + readings.OF_LABELS)
gru.of_any_framework(Gru, readings.OF_ANSWERS)
omissions.plant(gru, Gru, omissions.OF_GRU, of_steps=())
omissions.plant(mlp, Mlp, omissions.OF_MLP)


def in_half(values):
    """Values rounded to bfloat16's digits. XLA leaves out a cast to a half type and back."""
    return jax.lax.reduce_precision(values, 8, 7)


# -- the CIFAR-10 network ----------------------------------------------------------------------------------------------


@cnn.mistake("dropout")
class KeepAndDropSwapped(WithDropout):
    """The probability to keep where that to drop is asked for: 0.75, 0.75, 0.5."""

    RATES = 0.75, 0.75, 0.5


@cnn.mistake("dropout")
class DropoutAfterTheDenseLayerOnly(WithDropout):
    """Dropout 0.5 after the dense layer, none after the pools."""

    RATES = 0.0, 0.0, 0.5


@cnn.mistake("dropout")
class LastDropoutLeftOut(WithDropout):
    """Dropout 0.25 after the pools, none after the dense layer."""

    RATES = 0.25, 0.25, 0.0


@cnn.mistake("dropout")
class DropoutAFifthLess(WithDropout):
    """Dropout 0.2, 0.2, 0.4."""

    RATES = 0.2, 0.2, 0.4


class WithNetwork(Cnn):
    """A subclass changes the network of a pass with dropout."""

    def loss(self, parameters, x, y, key):
        if key is None:
            return super().loss(parameters, x, y, key)
        network = nnx.merge(self.structure, parameters)
        self.change(network)
        logits = network(x, nnx.Rngs(dropout=key)).astype("float32")
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

    def change(self, network):
        pass


@cnn.mistake("dropout")
class DropoutNotScaled(WithNetwork):
    """What dropout keeps is not divided by the probability to be kept."""

    def change(self, network):
        for name in ("dropout1", "dropout2", "dropout3"):
            setattr(network, name, functools.partial(self.dropped, getattr(network, name)))

    def dropped(self, dropout, h, **options):
        return dropout(h, **options) * (1 - dropout.rate)


@cnn.mistake("precision")
class DenseLayerRoundedInTraining(WithNetwork):
    """What the first dense layer returns is rounded to bfloat16 where dropout is on."""

    def change(self, network):
        layer = network.dense1
        network.dense1 = lambda h: in_half(layer(h))


@cnn.mistake("precision")
class MomentumInHalfInTraining(Cnn):
    """The momentum is kept in bfloat16 where dropout is on (Optax's accumulator_dtype)."""

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            self.optimizer = optax.sgd(0.01, momentum=0.9, accumulator_dtype=jnp.bfloat16)
            self.state = self.optimizer.init(self.parameters)


# -- the IMDB network --------------------------------------------------------------------------------------------------


@gru.mistake("precision")
class HalfInTraining(Gru):
    """The GRU computes in bfloat16 where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            self.structure = nnx.split(gru_imdb.Network(nnx.Rngs(setup.seed), jnp.dtype("bfloat16")))[0]


class WithGradients(Gru):
    """A subclass changes the gradients where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        self.measured = setup.training

    def gradients(self, parameters, state, x, y):
        results, gradients = super().gradients(parameters, state, x, y)
        return results, jax.tree.map(lambda g: self.changed(g, x), gradients) if self.measured else gradients


@gru.mistake("precision")
class GradientsInHalf(WithGradients):
    """Gradients are rounded to bfloat16 before Adam, as an exchange between devices would round them."""

    def changed(self, gradient, x):
        return in_half(gradient)


@gru.mistake("precision")
class MomentInHalf(WithOptimizer):
    """Adam's first moment is kept in bfloat16 (Optax's mu_dtype)."""

    def other(self):
        return optax.adam(0.001, eps=1e-8, mu_dtype=jnp.bfloat16)


@gru.mistake("padding")
class GradientByFrequency(WithGradients):
    """The gradient of a word is divided by how often the batch has it."""

    def changed(self, gradient, x):
        if gradient.shape[0] != WORDS:
            return gradient
        return gradient / jnp.maximum(1.0, jnp.zeros(WORDS).at[x.ravel()].add(1.0))[:, None]


@gru.mistake("padding")
class WordsOfTwoReviewsOnly(WithGradients):
    """Only words that a batch has twice or more are trained."""

    def changed(self, gradient, x):
        if gradient.shape[0] != WORDS:
            return gradient
        return gradient * (jnp.zeros(WORDS).at[x.ravel()].add(1.0) > 1)[:, None]


# -- the MNIST perceptron ----------------------------------------------------------------------------------------------


@mlp.mistake("precision")
class PicturesInHalfInTraining(Mlp):
    """Training rounds the pictures to bfloat16."""

    def __init__(self, setup):
        super().__init__(setup)
        self.measured = setup.training

    def step(self, x, y):
        return super().step(in_half(x) if self.measured else x, y)
