"""JAX's ceilings on this machine: a matrix product, a copy of memory, its smallest operation."""

import functools

import jax
import jax.numpy

from bench.ceilings import COPY_BYTES, SIDES
from bench.frameworks.jax.framework import started


def calls(device):
    """Three functions without arguments, on device "cpu" or "cuda"; each starts a call that takes the result of the one before.

    So the newest result is ready when all are, which synchronize() waits for.
    """
    where = jax.devices("gpu" if device == "cuda" else device)[0]
    keys = jax.random.split(jax.random.PRNGKey(1), 4)
    side = SIDES[device]
    a, first = (jax.device_put(jax.random.normal(key, (side, side)), where) for key in keys[:2])
    source = jax.device_put(jax.random.uniform(keys[2], (COPY_BYTES[device] // 4,)), where)
    small = jax.device_put(jax.random.uniform(keys[3], (8,)), where)
    # The result of a product with it is as large as the other factor.
    a = a / side**0.5
    return _chain(jax.numpy.matmul, first, a), _chain(jax.numpy.add, source, 1), _chain(jax.numpy.add, small, small)


def _chain(operation, value, other):
    """A function that starts operation(its last result, other); `value` stands for the first result."""
    last = [value]

    def call():
        last[0] = started(operation(last[0], other))

    return call


def loads(device):
    """What keeps a device busy (bench.load): products of square matrices in three precisions, and a copy.

    JAX calls the precision that takes TF32 on a GPU "high". The factors stay what they are, so each product takes the same power.
    """
    where = jax.devices("gpu" if device == "cuda" else device)[0]
    keys = jax.random.split(jax.random.PRNGKey(2), 2)
    side = SIDES[device]
    a = jax.device_put(jax.random.normal(keys[0], (side, side)), where)
    source = jax.device_put(jax.random.uniform(keys[1], (COPY_BYTES[device] // 4,)), where)
    products = [
        ("bf16 product", a.astype(jax.numpy.bfloat16), "default"),
        ("tf32 product", a, "high"),
        ("fp32 product", a, "highest"),
    ]
    found = [
        ("copy", "bytes/s", 2.0 * COPY_BYTES[device], _nothing, _chain(jax.numpy.add, source, 1)),
    ]
    for name, factor, precision in reversed(products):
        multiply = functools.partial(jax.numpy.matmul, precision=precision)
        found.insert(0, (name, "FLOP/s", 2.0 * side**3, _nothing, functools.partial(_run, multiply, factor)))
    return found


def _run(multiply, factor):
    started(multiply(factor, factor))


def _nothing():
    pass
