"""GPT-2's network in JAX: Flax NNX modules, jax.nn.dot_product_attention, one jitted step.

Idiomatic here: one Linear gives q, k and v. The attention is cuDNN's fused kernel where that has the type (half types on a GPU); otherwise
XLA compiles it as two products and a softmax, as there is no fused kernel of float32. The embedding's weight is the head's, too. In mixed
precision the sums of the blocks and the loss are float32; the logits are the half type's.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench.errors import Unsupported
from bench.frameworks.jax import _mixed
from bench.frameworks.jax._flax import get_value, set_value
from bench.frameworks.jax._loop import Trained as Loop

EPSILON = 1e-5  # Flax's default is 1e-6.
# Flax's names of the ends of the canonical ones: of a dense layer, and of a normalisation.
DENSE, NORM = {"w": "kernel", "b": "bias"}, {"g": "scale", "b": "bias"}


class Block(nnx.Module):
    def __init__(self, width, heads, dtype, rngs):
        how = {"dtype": dtype, "rngs": rngs}
        self.heads = heads
        self.ln1, self.ln2 = (nnx.LayerNorm(width, epsilon=EPSILON, **how) for _ in range(2))
        self.qkv, self.proj = nnx.Linear(width, 3 * width, **how), nnx.Linear(width, width, **how)
        self.fc, self.out = nnx.Linear(width, 4 * width, **how), nnx.Linear(4 * width, width, **how)

    def attend(self, x):
        qkv = self.qkv(x)
        q, k, v = (part.reshape(x.shape[:2] + (self.heads, -1)) for part in jnp.split(qkv, 3, axis=-1))
        fused = "cudnn" if jax.default_backend() == "gpu" and q.dtype.itemsize == 2 else "xla"
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=fused)
        return self.proj(y.reshape(x.shape))

    def __call__(self, h):
        h = h + self.attend(self.ln1(h))
        return h + self.out(nnx.gelu(self.fc(self.ln2(h)), approximate=True))


class Network(nnx.Module):
    def __init__(self, vocabulary, length, layers, heads, width, dtype, rngs):
        self.layers, self.dtype = layers, jnp.float32 if dtype is None else dtype
        self.wte, self.wpe = nnx.Embed(vocabulary, width, rngs=rngs), nnx.Embed(length, width, rngs=rngs)
        for block in range(layers):
            setattr(self, "h%d" % block, Block(width, heads, dtype, rngs))
        self.lnf = nnx.LayerNorm(width, epsilon=EPSILON, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        h = self.wte(x) + get_value(self.wpe.embedding)[: x.shape[1]]
        for block in range(self.layers):
            h = getattr(self, "h%d" % block)(h)
        return self.lnf(h) @ get_value(self.wte.embedding).T.astype(self.dtype)


class Trained(Loop):
    """A subclass gives SIZES, the first arguments of Network, and OPTIMIZER, of Optax."""

    def __init__(self, setup):
        if not hasattr(jax.nn, "dot_product_attention"):
            raise Unsupported("JAX %s has no dot_product_attention; JAX 0.4.31 is the first" % jax.__version__)
        self.layers = self.SIZES["layers"]
        super().__init__(
            setup,
            lambda: Network(dtype=_mixed.dtype(setup), rngs=nnx.Rngs(setup.seed), **self.SIZES),
            self.OPTIMIZER,
        )

    def fill(self, parameters):
        def give(variable, array):
            set_value(variable, jnp.asarray(array))

        for name in ("wte", "wpe"):
            give(self.parameters[name]["embedding"], parameters[name])
        for module, names in modules(self.layers):
            for end, own in (NORM if names[0].rpartition(".")[2].startswith("ln") else DENSE).items():
                array = np.concatenate([parameters[name + "." + end] for name in names])
                give(at(self.parameters, module)[own], array.T if own == "kernel" else array)

    def inputs(self, x, y):
        return np.ascontiguousarray(x, dtype="int32"), np.ascontiguousarray(y, dtype="int32")

    def canonical(self, tree):
        """Flax's parameters or their gradients -> canonical names and layouts."""
        arrays = {name: np.asarray(get_value(tree[name]["embedding"])) for name in ("wte", "wpe")}
        for module, names in modules(self.layers):
            for end, own in (NORM if names[0].rpartition(".")[2].startswith("ln") else DENSE).items():
                array = np.asarray(get_value(at(tree, module)[own]))
                parts = np.split(array.T if own == "kernel" else array, len(names))
                arrays.update((name + "." + end, part) for name, part in zip(names, parts))
        return arrays


def modules(layers):
    """(path of a Flax module, the canonical names of its parts) of all but the embeddings. q, k and v are thirds of one."""
    for block in ("h%d" % block for block in range(layers)):
        for name in ("ln1", "proj", "ln2", "fc", "out"):
            yield (block, name), [block + "." + name]
        yield (block, "qkv"), [block + "." + part for part in "qkv"]
    yield ("lnf",), ["lnf"]


def at(tree, path):
    for part in path:
        tree = tree[part]
    return tree
