"""Mixed precision in JAX: Flax computes in the half type from float32 parameters (`dtype`); for float16 there is a loss scale.

Optax has none, so it is written out, as a transformation around the optimiser. XLA's CPU backend has few kernels of a half type: what
it has none for is computed in float32 and rounded, which gives the same numbers, and times that say nothing of a GPU's. A bias's
gradient it sums in the type of what the bias was added to, so the last layer's sums stay in float32.
"""

import collections
import functools

import jax
import jax.numpy as jnp
import optax

from bench import mixed

# The loss scale, the steps since it last changed, how many were skipped so far, and the optimiser's own state.
Scaled = collections.namedtuple("Scaled", "scale steps skipped state")

# For the `dot_general` of the layer that gives the logits: factors of the half type, and the sums as they are made, not rounded to it.
logits_product = functools.partial(jax.lax.dot_general, preferred_element_type=jnp.float32)


def dtype(setup):
    """What Flax's layers compute in; None: in the type of their parameters."""
    half = mixed.half(setup.precision)
    return jnp.dtype(half) if half else None


def optimizer(setup, plain):
    """An Optax transformation, at float16 one that skips a step whose gradients overflowed, and moves the scale."""
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
    """jax.value_and_grad of a loss with auxiliary results; with a loss scale, the gradient of the scaled loss divided by it."""
    if not isinstance(state, Scaled):
        return jax.value_and_grad(loss, has_aux=True)

    def scaled(*arguments):
        value, rest = loss(*arguments)
        return state.scale * value, (value, rest)

    def gradients(*arguments):
        (_, found), gradients = jax.value_and_grad(scaled, has_aux=True)(*arguments)
        return found, jax.tree.map(lambda g: g / state.scale, gradients)

    return gradients


def skipped(state):
    """How many steps so far changed nothing."""
    return int(state.skipped) if isinstance(state, Scaled) else 0
