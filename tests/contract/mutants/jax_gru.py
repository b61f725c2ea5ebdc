"""Mistakes in the IMDB network in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from bench.frameworks.jax import gru_imdb
from tests.contract.mutants import anywhere, later, rows, wrong_items
from tests.contract.mutants.registry import Planted

gru = Planted("jax", "gru-imdb")
Training = gru_imdb.Training
# The length of the only tensor with so many rows: the embedding.
WORDS = 30000
gru.of_any_framework(Training, anywhere.EVERYWHERE)
gru.of_any_framework(Training, wrong_items.EVERYWHERE)
gru.of_any_framework(Training, later.LATER)


class WithIds(Training):
    """A subclass changes the ids that the network reads, in every pass."""

    def read_ids(self, x):
        return x

    def loss(self, parameters, x, y):
        return super().loss(parameters, self.read_ids(x), y)

    def predict(self, x):
        return super().predict(self.read_ids(x))


class WithOptimizer(Training):
    def __init__(self, setup):
        super().__init__(setup)
        self.optimizer = self.other()
        self.state = self.optimizer.init(self.parameters)

    def changed(self, change):
        """Adam, whose updates go through change(gradients, updates)."""
        adam = optax.adam(0.001, b1=0.9, b2=0.999, eps=1e-8)

        def update(gradients, state, parameters=None):
            updates, state = adam.update(gradients, state, parameters)
            return change(gradients, updates), state

        return optax.GradientTransformation(adam.init, update)


@gru.rewrite
class ScanUnrolled(Training):
    """lax.scan unrolled by ten positions."""

    def loss(self, parameters, x, y):
        scan = jax.lax.scan
        jax.lax.scan = lambda *words, **options: scan(*words, **{**options, "unroll": 10})
        try:
            return super().loss(parameters, x, y)
        finally:
            jax.lax.scan = scan


@gru.mistake("length")
class Last45Positions(WithIds):
    """The last 45 of 150 positions only."""

    def read_ids(self, x):
        return x[:, -45:]


@gru.mistake("length")
class Last149Positions(WithIds):
    """All positions but the first."""

    def read_ids(self, x):
        return x[:, 1:]


@gru.mistake("padding")
class PaddingNotTrained(Training):
    """The gradient of the embedding of id 0 is zero."""

    def gradients(self, parameters, state, x, y):
        results, gradients = super().gradients(parameters, state, x, y)
        return results, jax.tree.map(lambda g: g.at[0].set(0.0) if len(g) == WORDS else g, gradients)


@gru.mistake("optimiser")
class LazyAdam(WithOptimizer):
    """Rows of the embedding without a gradient are not updated."""

    def other(self):
        def change(gradients, updates):
            return jax.tree.map(
                lambda g, u: jnp.where(jnp.any(g != 0, axis=1, keepdims=True), u, 0) if len(g) == WORDS else u,
                gradients,
                updates,
            )

        return self.changed(change)


@gru.mistake("optimiser", slow=True)
class EpsilonInTheRoot(WithOptimizer):
    """Epsilon 1e-8 added below the root (eps_root), none after it."""

    def other(self):
        return optax.adam(0.001, eps=0.0, eps_root=1e-8)


@gru.mistake("optimiser", slow=True)
class AmsGrad(WithOptimizer):
    """AMSGrad."""

    def other(self):
        return optax.amsgrad(0.001, eps=1e-8)


@gru.mistake(
    "regularisation",
    slow=True,
)
class AdamW(WithOptimizer):
    """AdamW with Optax's default weight decay of 1e-4."""

    def other(self):
        return optax.adamw(0.001, eps=1e-8)


@gru.mistake("regularisation", slow=True)
class Clipped(WithOptimizer):
    """The norm of the gradient is cut at 0.01."""

    def other(self):
        return optax.chain(optax.clip_by_global_norm(0.01), optax.adam(0.001, eps=1e-8))


@gru.mistake("schedule", slow=True)
class WarmedUpRate(WithOptimizer):
    """The learning rate rises in the first ten steps."""

    def other(self):
        return optax.adam(optax.linear_schedule(1e-4, 1e-3, 10), eps=1e-8)

    def updates(self):
        # A schedule counts its steps as well.
        return int(optax.tree_utils.tree_get_all_with_path(self.state, "count")[0][1])


@gru.mistake("state", slow=True)
class MomentsForgotten(Training):
    """Adam's state is made anew before every step."""

    def step(self, x, y):
        self.state = self.optimizer.init(self.parameters)
        return super().step(x, y)


@gru.mistake("measured object", slow=True)
class EmbeddingFrozenInTraining(WithOptimizer):
    """The embedding is not updated where setup.training is True."""

    def __init__(self, setup):
        self.freeze = setup.training
        super().__init__(setup)

    def other(self):
        def change(gradients, updates):
            return jax.tree.map(lambda u: jnp.zeros_like(u) if self.freeze and len(u) == WORDS else u, updates)

        return self.changed(change)


@gru.mistake("evaluation", slow=True)
class EvaluationInHalf(Training):
    """The evaluation computes in bfloat16."""

    def predict(self, x):
        structure = nnx.split(gru_imdb.Network(nnx.Rngs(0), jnp.dtype("bfloat16")))[0]
        half = nnx.merge(structure, self.parameters)
        return np.asarray(half(x)).astype("float32")


class WithRows(Training):
    """Some rows of the embedding have a factor, where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        self.training = setup.training

    def of_rows(self, tree, factors):
        return jax.tree.map(lambda value: value * factors if len(value) == WORDS else value, tree)

    def gradients(self, parameters, state, x, y):
        results, gradients = super().gradients(parameters, state, x, y)
        return results, self.of_rows(gradients, self.FACTORS) if self.training else gradients

    def step(self, x, y):
        loss = super().step(x, y)
        if self.training and (self.AFTER != 1).any():
            self.parameters = self.of_rows(self.parameters, self.AFTER)
        return loss


rows.plant(gru, WithRows)
