"""All that training changes in a person's own network of JAX: the arrays in its attributes, lists, dicts and flax's modules in them too.

What lies in attributes whose names begin with "param" are parameters; the rest is the optimiser's.
"""

import jax
import numpy as np
from flax import nnx

from bench.frameworks.jax import framework

HOLDS = "set self.parameters to a tree of arrays, or self.model to a module of flax.nnx"


def _trees(network):
    """(kind, name, value, the arrays in it as (path, array) each)."""
    for name, value in sorted(vars(network).items()):
        module = isinstance(value, (nnx.Module, nnx.Optimizer))
        tree = nnx.state(value) if module else value
        kind = "parameter" if name.startswith("param") or isinstance(value, nnx.Module) else "optimizer"
        leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
        arrays = [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves if isinstance(leaf, jax.Array)]
        yield kind, name, value, tree, arrays


def started(network, loss):
    """The loss. A step is over when all that it sets is computed, and not its loss alone."""
    framework.started(
        (loss, [leaf for leaf in jax.tree_util.tree_leaves(vars(network)) if isinstance(leaf, jax.Array)])
    )
    return loss


def _array(leaf):
    floats = jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
    return np.array(
        leaf.astype("float32") if leaf.dtype == jax.numpy.bfloat16 else leaf, dtype="float64" if floats else None
    )


def values(network):
    return {
        "%s/%s%s" % (kind, name, path): _array(leaf)
        for kind, name, _, _, arrays in _trees(network)
        for path, leaf in arrays
    }


def restore(network, values):
    for kind, name, value, tree, arrays in list(_trees(network)):
        if not arrays:
            continue

        def put(path, leaf, begin="%s/%s" % (kind, name)):
            if not isinstance(leaf, jax.Array):
                return leaf
            wide = jax.config.jax_enable_x64 and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
            return jax.numpy.asarray(
                values[begin + jax.tree_util.keystr(path)], dtype="float64" if wide else leaf.dtype
            )

        put_back = jax.tree_util.tree_map_with_path(put, tree)
        if isinstance(value, (nnx.Module, nnx.Optimizer)):
            nnx.update(value, put_back)
        else:
            setattr(network, name, put_back)


def in_eval(network):
    """eval() of flax's modules sets these."""
    found = []
    for name, module in sorted(vars(network).items()):
        for path, layer in nnx.iter_graph(module) if isinstance(module, nnx.Module) else ():
            if getattr(layer, "use_running_average", False) is True or _drops_nothing(layer):
                found.append("%s (%s)" % (".".join(map(str, (name,) + path)), type(layer).__name__))
    return found


def _drops_nothing(layer):
    return isinstance(layer, nnx.Dropout) and layer.rate > 0 and layer.deterministic is True


def widen(network):
    """JAX computes in float64 since before the network was built; what it draws otherwise is set anew."""


def before_import():
    """Before the file of the network is run in float64."""
    jax.config.update("jax_enable_x64", True)
