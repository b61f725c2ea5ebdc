"""Mistakes in the MNIST perceptron in JAX."""

import jax.numpy as jnp
import optax
from flax import nnx

from bench.frameworks.jax import mlp_mnist
from tests.contract.mutants import anywhere
from tests.contract.mutants.registry import Planted

mlp = Planted("jax", "mlp-mnist")
Training = mlp_mnist.Training
mlp.of_any_framework(Training, anywhere.EVERYWHERE)
mlp.of_any_framework(Training, (("data", anywhere.HalfOfTheBatch),))


@mlp.mistake("optimiser")
class AmsGrad(Training):
    """AMSGrad."""

    def __init__(self, setup):
        super().__init__(setup)
        self.optimizer = optax.amsgrad(0.001, eps=1e-8)
        self.state = self.optimizer.init(self.parameters)


@mlp.mistake("precision")
class HalfInTraining(Training):
    """The layers compute in bfloat16 where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            self.structure, self.parameters = nnx.split(mlp_mnist.Network(nnx.Rngs(setup.seed), jnp.bfloat16))


@mlp.mistake("loss")
class LabelSmoothing(Training):
    """Label smoothing of 0.01."""

    def loss(self, parameters, x, y):
        logits = nnx.merge(self.structure, parameters)(x)
        smooth = optax.smooth_labels(jnp.eye(10)[y], 0.01)
        return optax.softmax_cross_entropy(logits, smooth).mean(), logits
