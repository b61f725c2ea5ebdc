"""The IMDB network in TensorFlow: Keras' Embedding, GRU and Dense, Adam, and the training step as one tf.function.

Idiomatic here: keras.layers.GRU with its defaults is cuDNN's fused kernel on a GPU. On a CPU, and where XLA compiles it, it is a
tf.while_loop over the positions. On a CPU XLA compiles the step, which takes three quarters of the time that it takes without. Keras stacks
the gates z, r, n and keeps both biases in one (2, 300) array. The embedding's gradient is sparse (tf.IndexedSlices); Adam's moments, which
every row has, make it dense.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from bench import contract
from bench.frameworks.keras import _mixed
from bench.frameworks.tensorflow._keras import KERAS_2, Adam, cross_entropy, loop
from bench.frameworks.tensorflow.framework import by_xla, function

# On a CPU. Keras 2 is left as it is: its GRU was not measured so.
FASTER_BY_XLA = not KERAS_2


def network():
    return keras.Sequential(
        [
            keras.Input((150,), dtype="int32"),
            # No mask: the padding is read like any word.
            layers.Embedding(30000, 125),
            # The reset gate after the product, as in cuDNN. The first state is zero and not trained. The output of the last position.
            # XLA compiles a loop: it has no kernel that calls cuDNN's GRU.
            layers.GRU(100, reset_after=True, **loop(by_xla(FASTER_BY_XLA))),
            layers.Dense(2),
        ]
    )


class Training(contract.Training):
    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        self.network = network()
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        self.loss = cross_entropy()
        # Adam's constants are explicit: defaults differ among frameworks. Keras' epsilon would be 1e-7.
        self.optimizer = _mixed.optimizer(setup, Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8))
        self.steps = _mixed.Skipped(self.optimizer)
        self.optimizer.build(self.network.trainable_variables)
        self.fresh = [value.numpy() for value in self.optimizer.variables]
        # Traced at the first call and compiled to a graph, as people run it for speed.
        self.loss_and_gradients = function(self._loss_and_gradients)
        self.train_step = function(self._train_step, FASTER_BY_XLA)
        self.logits = function(self._logits)

    def load(self, parameters):
        self.network.set_weights(to_keras(parameters))
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.steps.restart()

    def read(self):
        return canonical(self.network.get_weights())

    def inputs(self, x, y):
        return x, y

    def _loss_and_gradients(self, x, y):
        with tf.GradientTape() as tape:
            logits = tf.cast(self.network(x, training=True), tf.float32)
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
        gradients = [tf.convert_to_tensor(value).numpy() for value in gradients]
        return logits.numpy(), float(loss), canonical(_mixed.unscaled(self.optimizer, gradients))

    def step(self, x, y):
        self.steps.add()
        return self.train_step(tf.constant(x), tf.constant(y))

    def skipped(self):
        return self.steps.count()

    def updates(self):
        return int(self.optimizer.iterations.numpy())

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        return self.logits(tf.constant(x)).numpy()


def swap_gates(w):
    """Exchange the gates r and z along the first axis: canonical order r, z, n; Keras' order z, r, n."""
    r, z, n = np.split(w, 3)
    return np.concatenate([z, r, n])


def to_keras(parameters):
    """Canonical arrays as Keras' list: embedding, kernel, recurrent kernel, both biases, dense kernel, dense bias."""
    p = parameters
    biases = np.stack([swap_gates(p["gru.b"]), swap_gates(p["gru.c"])])
    return [p["embedding"], swap_gates(p["gru.w"]).T, swap_gates(p["gru.u"]).T, biases, p["dense.w"].T, p["dense.b"]]


def canonical(values):
    embedding, kernel, recurrent, biases, dense, bias = values
    return {
        "embedding": embedding,
        "gru.w": swap_gates(kernel.T),
        "gru.b": swap_gates(biases[0]),
        "gru.u": swap_gates(recurrent.T),
        "gru.c": swap_gates(biases[1]),
        "dense.w": dense.T,
        "dense.b": bias,
    }
