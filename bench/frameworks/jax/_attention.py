"""Causal attention in JAX: jax.nn.dot_product_attention with its own choice or cuDNN's kernel, and written out.

Idiomatic here: the heads stay behind the positions, and einsum orders the products. The written form is Flax's dot_product_attention,
with the key heads repeated and the softmax in fp32.
"""

import functools

import jax
import jax.numpy as jnp
from jax import nn

from bench.errors import Unsupported

LACKS = {
    "flash": "JAX's interface has one fused attention, cuDNN's: Pallas's kernels are experimental",
    "efficient": "JAX has no memory-efficient attention beside cuDNN's kernel",
}


def function(operation, dtype):
    """The function of (q, k, v) for a name such as attention_d64_cudnn. Raises Unsupported."""
    backend = operation.rpartition("_")[2]
    if backend == "written":
        return written
    if backend in LACKS:
        raise Unsupported(LACKS[backend])
    if not hasattr(nn, "dot_product_attention"):
        raise Unsupported("JAX %s has no jax.nn.dot_product_attention; JAX 0.4.31 is the first" % jax.__version__)
    if backend == "cudnn":
        return functools.partial(nn.dot_product_attention, is_causal=True, implementation="cudnn")
    if dtype == "float64":
        raise Unsupported("jax.nn.dot_product_attention computes its softmax in fp32, also of float64 numbers")
    return functools.partial(nn.dot_product_attention, is_causal=True)


def written(q, k, v):
    group = q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, group, axis=2), jnp.repeat(v, group, axis=2)
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * q.shape[3] ** -0.5
    seen = jnp.tri(q.shape[1], dtype=bool)
    scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
    weights = nn.softmax(scores.astype(jnp.promote_types(q.dtype, jnp.float32))).astype(q.dtype)
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def kernel(operation, function, arrays):
    """The kernel of a jitted function of `arrays`, by the calls in what JAX lowers it to: "cuDNN", or "XLA". Raises Unsupported."""
    try:
        text = function.lower(*arrays).as_text()
        # XLA and cuDNN may refuse while they compile.
        jax.block_until_ready(function(*arrays))
    except (NotImplementedError, ValueError, RuntimeError) as error:
        # XLA's CPU compiler lacks the products of JAX's own choice at fp16.
        if operation.endswith("_written") or "RESOURCE_EXHAUSTED" in str(error):
            raise
        raise Unsupported(str(error).partition("\n")[0][:1000])
    return "cuDNN" if "__cudnn$fmha" in text else "XLA"
