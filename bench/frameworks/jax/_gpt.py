"""GPT-2's network in JAX: Flax NNX modules, jax.nn.dot_product_attention, one jitted step.

Idiomatic here: one Linear gives q, k and v. The attention is cuDNN's fused kernel where that has the type (half types on a GPU); otherwise
XLA compiles it as two products and a softmax, as there is no fused kernel of float32. The embedding's weight is the head's, too. In mixed
precision the sums of the blocks and the loss are float32; the logits are the half type's.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench import stacked
from bench.errors import Unsupported
from bench.frameworks.jax import _mixed
from bench.frameworks.jax._flax import get_value, set_value
from bench.frameworks.jax._loop import Trained as Loop

EPSILON = 1e-5  # Flax's default is 1e-6.
# Flax's names of the ends of the canonical ones: of a dense layer, and of a normalisation.
DENSE, NORM = {"w": "kernel", "b": "bias"}, {"g": "scale", "b": "bias"}
# Flax's names of the matrices that are (in, out); _llama.py has the last two, of several experts.
TURNED = "kernel", "gate_up", "down"


def attention(q, k, v):
    fused = "cudnn" if jax.default_backend() == "gpu" and q.dtype.itemsize == 2 else "xla"
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=fused)


class Block(nnx.Module):
    def __init__(self, width, heads, dtype, rngs):
        how = {"dtype": dtype, "rngs": rngs}
        self.heads = heads
        self.ln1, self.ln2 = (nnx.LayerNorm(width, epsilon=EPSILON, **how) for _ in range(2))
        self.qkv, self.proj = nnx.Linear(width, 3 * width, **how), nnx.Linear(width, width, **how)
        self.fc, self.out = nnx.Linear(width, 4 * width, **how), nnx.Linear(4 * width, width, **how)

    def attend(self, x):
        parts = jnp.split(self.qkv(x), 3, axis=-1)
        q, k, v = (part.reshape(x.shape[:2] + (self.heads, -1)) for part in parts)
        return self.proj(attention(q, k, v).reshape(x.shape))

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
    """A subclass gives SIZES, the first arguments of NETWORK, and OPTIMIZER, of Optax; with another network also places()."""

    NETWORK = Network

    def __init__(self, setup):
        if not hasattr(jax.nn, "dot_product_attention"):
            raise Unsupported("JAX %s has no dot_product_attention; JAX 0.4.31 is the first" % jax.__version__)
        self.layers = self.SIZES["layers"]
        super().__init__(
            setup,
            lambda: self.NETWORK(dtype=_mixed.dtype(setup), rngs=nnx.Rngs(setup.seed), **self.SIZES),
            self.OPTIMIZER,
        )

    def fill(self, parameters):
        self.rows = {name: len(value) for name, value in parameters.items()}
        fill(self.parameters, parameters, self.places())

    def inputs(self, x, y):
        return np.ascontiguousarray(x, dtype="int32"), np.ascontiguousarray(y, dtype="int32")

    def canonical(self, tree):
        """Flax's parameters or their gradients -> canonical names and layouts."""
        arrays = {}
        for path, names in self.places():
            array = np.asarray(get_value(at(tree, path)))
            arrays.update(stacked.parts(array, names, self.rows, path[-1] in TURNED))
        return arrays

    def places(self):
        return places(self.layers)


def fill(tree, parameters, places):
    """Put canonical parameters into Flax's, at their places."""
    for path, names in places:
        variable = at(tree, path)
        shape = get_value(variable).shape if path[-1] in TURNED else None
        set_value(variable, jnp.asarray(stacked.joined(parameters, names, shape)))


def places(layers):
    """(path of a Flax variable, the canonical names of its parts, one after another)."""
    for name in ("wte", "wpe"):
        yield (name, "embedding"), [name]
    for path, names in modules(layers):
        for end, own in (NORM if path[-1].startswith("ln") else DENSE).items():
            yield path + (own,), [name + "." + end for name in names]


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
