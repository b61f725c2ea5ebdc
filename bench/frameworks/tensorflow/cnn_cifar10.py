"""The CIFAR-10 network in TensorFlow: Keras layers, a Keras optimiser, and the training step as one tf.function.

Idiomatic here: the step is traced once and runs as a graph. TensorFlow convolves channels last (N, H, W, C) on a CPU, and channels first
(N, C, H, W), the layout that cuDNN computes in, on a GPU. The images are permuted once, before training. For the first dense layer its
weights are permuted, not its input.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from bench import contract
from bench.frameworks.keras import _mixed
from bench.frameworks.tensorflow import _layouts
from bench.frameworks.tensorflow._keras import SGD, cross_entropy
from bench.frameworks.tensorflow.framework import channels_first, function

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


def network(order, seed):
    """order: "channels_first" | "channels_last"."""

    # Stride and padding are explicit: defaults differ among frameworks. "same" pads a 3 x 3 kernel by 1.
    def conv(filters, name):
        return layers.Conv2D(filters, 3, padding="same", data_format=order, name=name)

    def pool():
        return layers.MaxPooling2D(2, strides=2, data_format=order)

    return keras.Sequential(
        [
            keras.Input((3, 32, 32) if order == "channels_first" else (32, 32, 3)),
            conv(50, "conv1"),
            layers.ReLU(),
            conv(50, "conv2"),
            # ReLU after the pooling: the same values, a quarter of the work.
            pool(),
            layers.ReLU(),
            layers.Dropout(0.25, seed=seed),
            conv(100, "conv3"),
            layers.ReLU(),
            conv(100, "conv4"),
            pool(),
            layers.ReLU(),
            layers.Dropout(0.25, seed=seed + 1),
            # Reshape keeps the order in memory. Flatten would transpose channels-first images.
            layers.Reshape((6400,)),
            layers.Dense(512, activation="relu", name="dense1"),
            layers.Dropout(0.5, seed=seed + 2),
            layers.Dense(10, name="dense2"),
        ]
    )


class Training(contract.Training):
    def __init__(self, setup):
        self.channels_first = channels_first()
        self.dropout = setup.training
        self.network = network("channels_first" if self.channels_first else "channels_last", setup.seed)
        self.drawing = [layer for layer in self.network.layers if isinstance(layer, layers.Dropout)]
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        self.loss = cross_entropy()
        # Momentum: v = m v - rate g; w = w + v, without dampening or Nesterov.
        # At a constant rate this is the specification's v = m v + g; w = w - rate v.
        self.optimizer = _mixed.optimizer(setup, SGD(learning_rate=0.01, momentum=0.9))
        self.steps = _mixed.Skipped(self.optimizer)
        self.optimizer.build(self.network.trainable_variables)
        self.fresh = [value.numpy() for value in self.optimizer.variables]
        # Traced at the first call and compiled to a graph, as people run it for speed.
        self.loss_and_gradients, self.train_step = function(self._loss_and_gradients), function(self._train_step)
        self.logits = function(self._logits)

    def load(self, parameters):
        for name, layer in ((name, self.network.get_layer(name)) for name in LAYERS):
            layer.set_weights([self.to_keras(name, parameters[name + ".w"]), parameters[name + ".b"]])
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.steps.restart()

    def read(self):
        return self.canonical([value.numpy() for value in self.network.trainable_variables])

    def inputs(self, x, y):
        # A permutation: exchanging axes 1 and 3 would also transpose the picture.
        return (x if self.channels_first else np.ascontiguousarray(x.transpose(0, 2, 3, 1))), y

    def _loss_and_gradients(self, x, y):
        with tf.GradientTape() as tape:
            # Dropout only in training.
            logits = tf.cast(self.network(x, training=self.dropout), tf.float32)
            loss = self.loss(y, logits)
            # Without a loss scale this is the loss itself.
            scaled = self.optimizer.scale_loss(loss)
        return logits, loss, tape.gradient(scaled, self.network.trainable_variables)

    def _train_step(self, x, y):
        _, loss, gradients = self._loss_and_gradients(x, y)
        self.optimizer.apply(gradients, self.network.trainable_variables)
        return loss

    # No gradients in evaluation: they cost memory and time.
    def _logits(self, x):
        return tf.cast(self.network(x, training=False), tf.float32)

    def probe(self, x, y):
        logits, loss, gradients = self.loss_and_gradients(tf.constant(x), tf.constant(y))
        gradients = [value.numpy() for value in gradients]
        return logits.numpy(), float(loss), self.canonical(_mixed.unscaled(self.optimizer, gradients))

    def masks(self):
        return [layer.seed_generator.state.numpy() for layer in self.drawing]

    def redraw(self, masks):
        for layer, state in zip(self.drawing, masks):
            layer.seed_generator.state.assign(state)

    def step(self, x, y):
        self.steps.add()
        return self.train_step(tf.constant(x), tf.constant(y))

    def skipped(self):
        return self.steps.count()

    def updates(self):
        return int(self.optimizer.iterations.numpy())

    def predict(self, x):
        return self.logits(tf.constant(x)).numpy()

    def to_keras(self, name, w):
        if name == "dense1" and not self.channels_first:
            w = w.reshape(512, 100, 8, 8).transpose(0, 2, 3, 1).reshape(512, 6400)
        return _layouts.to_own(w)

    def canonical(self, values):
        """Keras' arrays, in the order of trainable_variables -> canonical names and layouts."""
        tensors = {}
        for name, w, b in zip(LAYERS, values[0::2], values[1::2]):
            w = _layouts.canonical(w)
            if name == "dense1" and not self.channels_first:
                w = w.reshape(512, 8, 8, 100).transpose(0, 3, 1, 2).reshape(512, 6400)
            tensors[name + ".w"], tensors[name + ".b"] = w, b
        return tensors
