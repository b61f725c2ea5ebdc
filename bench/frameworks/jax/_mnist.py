"""What both networks on MNIST share: layers with a weight and a bias, and batches that lie on the device before the first step."""

import jax
import numpy as np

from bench.frameworks.jax import _loop
from bench.frameworks.jax._flax import get_value, set_value


class Trained(_loop.Trained):
    """A subclass gives LAYERS, and to_flax(name, w) and from_flax(name, w), which change the layout of a layer's weight."""

    def fill(self, parameters):
        for name in self.LAYERS:
            set_value(self.parameters[name]["kernel"], jax.numpy.array(self.to_flax(name, parameters[name + ".w"])))
            set_value(self.parameters[name]["bias"], jax.numpy.array(parameters[name + ".b"]))

    def inputs(self, x, y):
        return jax.device_put(x), jax.device_put(y)

    def canonical(self, tree):
        """Flax's parameters or their gradients -> canonical names and layouts."""
        arrays = {}
        for name in self.LAYERS:
            arrays[name + ".w"] = self.from_flax(name, np.asarray(get_value(tree[name]["kernel"])))
            arrays[name + ".b"] = np.asarray(get_value(tree[name]["bias"]))
        return arrays
