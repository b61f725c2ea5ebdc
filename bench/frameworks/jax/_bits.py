"""Products whose bits bench.same_bits looks at, in JAX."""

import functools

import jax
import jax.numpy

from bench.ceilings import SIDES
from bench.same_bits import BLOCKS


def bits_of_products(device):
    """(name, if each GPU of a model takes the same kernel, a function that gives the sums).

    XLA chooses among kernels by their times, so two GPUs may add up in another order.
    """
    where = jax.devices("gpu" if device == "cuda" else device)[0]
    a = jax.device_put(jax.random.normal(jax.random.PRNGKey(2), (SIDES[device], SIDES[device])), where)
    half = a.astype(jax.numpy.bfloat16)
    return [
        ("bf16 product", False, functools.partial(_sums, half, "default")),
        ("tf32 product", False, functools.partial(_sums, a, "high")),
        ("fp32 product", False, functools.partial(_sums, a, "highest")),
    ]


def _sums(factor, precision):
    return jax.device_get(_of_blocks(jax.numpy.matmul(factor, factor, precision=precision)))


@jax.jit
def _of_blocks(result):
    bits = jax.lax.bitcast_convert_type(result, "int16" if result.dtype.itemsize == 2 else "int32").astype("int32")
    side = len(result) // BLOCKS
    return bits.reshape(BLOCKS, side, BLOCKS, side).sum((1, 3))
