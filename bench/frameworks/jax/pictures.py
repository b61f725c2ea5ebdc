"""What the deep networks on pictures do with a module that is split into structure, parameters and running statistics: read, evaluate."""

import numpy as np
from flax import nnx


class Trained:
    """A subclass gives parameters, statistics, names (canonical name -> a variable's path) and logits(parameters, statistics, x)."""

    def read(self):
        return self.canonical(self.parameters, self.statistics)

    def inputs(self, x, y):
        # A2: a permutation; exchanging axes 1 and 3 would also transpose the picture
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        return np.asarray(self.logits(self.parameters, self.statistics, x))

    def canonical(self, *trees):
        """Flax's variables, or their gradients -> canonical names and layouts."""
        found = {}
        for tree in trees:
            flat = dict(nnx.to_flat_state(tree))
            found.update((name, flat[path]) for name, path in self.names.items() if path in flat)
        return {name: from_flax(np.asarray(variable[...])) for name, variable in found.items()}


def to_flax(value):
    """A canonical parameter -> Flax's: kernels (kh, kw, in, out), dense (in, out)."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def from_flax(value):
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
