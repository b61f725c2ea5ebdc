"""Mixed precision in JAX: Flax computes in the half type from float32 parameters (`dtype`); float16 has a loss scale.

Optax has no loss scale, so it is written out, as a transformation around the optimiser. XLA's CPU backend has few kernels of a half type.
It computes the other operations in float32 and rounds: the numbers are the same, the times say nothing about a GPU. It sums a bias's
gradient in the type of the layer's output, so the last layer's output stays in float32.
"""

import collections
import functools

import jax
import jax.numpy as jnp
import optax

from bench import mixed

# The loss scale, the steps since its last change, the number of skipped steps, and the optimiser's own state.
Scaled = collections.namedtuple("Scaled", "scale steps skipped state")

# The `dot_general` of the layer that gives the logits: factors of the half type, sums in float32 that are not rounded.
logits_product = functools.partial(jax.lax.dot_general, preferred_element_type=jnp.float32)


def dtype(setup):
    """The type in which Flax's layers compute. None means the type of their parameters."""
    half = mixed.half(setup.precision)
    return jnp.dtype(half) if half else None


def optimizer(setup, plain):
    """An Optax transformation. At float16 it skips a step whose gradients overflow, and changes the scale."""
    if mixed.half(setup.precision) != "float16":
        return plain

    def init(parameters):
        return Scaled(jnp.float32(mixed.INITIAL_SCALE), jnp.int32(0), jnp.int32(0), plain.init(parameters))

    def update(gradients, state, parameters=None):
        finite = jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]).all()
        updates, inner = plain.update(gradients, state.state, parameters)
        updates = jax.tree.map(lambda u: jnp.where(finite, u, 0), updates)
        inner = jax.tree.map(lambda new, old: jnp.where(finite, new, old), inner, state.state)
        grows = state.steps + 1 == mixed.GROWTH_STEPS
        scale = jnp.where(finite, jnp.where(grows, 2, 1), 0.5) * state.scale
        steps = jnp.where(finite & ~grows, state.steps + 1, 0)
        return updates, Scaled(scale, steps, state.skipped + ~finite, inner)

    return optax.GradientTransformation(init, update)


def value_and_grad(loss, state):
    """jax.value_and_grad of a loss with auxiliary results. With a loss scale: the gradient of the scaled loss, divided by the scale."""
    if not isinstance(state, Scaled):
        return jax.value_and_grad(loss, has_aux=True)

    def scaled(*arguments):
        value, rest = loss(*arguments)
        return state.scale * value, (value, rest)

    def gradients(*arguments):
        (_, results), gradients = jax.value_and_grad(scaled, has_aux=True)(*arguments)
        return results, jax.tree.map(lambda g: g / state.scale, gradients)

    return gradients


def skipped(state):
    """The number of steps that the loss scale skipped."""
    return int(state.skipped) if isinstance(state, Scaled) else 0
