"""JAX's ceilings on this machine: a matrix product, a copy of memory, its smallest operation."""

import jax
import jax.numpy

from bench.ceilings import COPY_BYTES, SIDE


def calls(device):
    """Three functions without arguments, on device "cpu" or "cuda". Their results are not used."""
    where = jax.devices("gpu" if device == "cuda" else device)[0]
    a = jax.device_put(jax.numpy.ones((SIDE, SIDE)), where)
    source = jax.device_put(jax.numpy.ones(COPY_BYTES // 4), where)
    small = jax.device_put(jax.numpy.ones(8), where)
    return (
        lambda: jax.block_until_ready(jax.numpy.matmul(a, a)),
        lambda: jax.block_until_ready(source + 1),
        lambda: jax.block_until_ready(small + small),
    )
