"""Training of the two networks on MNIST. Their batches lie on the device before the first step."""

import tensorflow as tf

from bench.frameworks.tensorflow import _trained


class Trained(_trained.Trained):
    """A subclass has LAYERS, in the model's order; to_keras(name, w) and from_keras(name, w) change the layout of a weight."""

    def fill(self, parameters):
        for name in self.LAYERS:
            layer = self.network.get_layer(name)
            layer.set_weights([self.to_keras(name, parameters[name + ".w"]), parameters[name + ".b"]])

    def inputs(self, x, y):
        return tf.constant(x), tf.constant(y)

    # A batch is a tensor already.
    def step(self, x, y):
        self.steps.add()
        return self.train_step(x, y)

    def canonical(self, values):
        """Weights and biases, in the order of trainable_variables -> canonical names and layouts."""
        tensors = {}
        for name, w, b in zip(self.LAYERS, values[0::2], values[1::2]):
            tensors[name + ".w"], tensors[name + ".b"] = self.from_keras(name, w), b
        return tensors
