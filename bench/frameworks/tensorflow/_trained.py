"""Training of a Keras model with Adam, its step as one tf.function."""

import keras
import tensorflow as tf

from bench import contract
from bench.frameworks.keras import _mixed
from bench.frameworks.tensorflow._keras import Adam, cross_entropy
from bench.frameworks.tensorflow.framework import function


class Trained(contract.Training):
    """A subclass gives fill(parameters), which sets the model's weights, and canonical(values), for its weights or their gradients."""

    # True: XLA makes the step faster on a CPU.
    FASTER_BY_XLA = False
    BETA2 = 0.999

    def __init__(self, setup, network):
        keras.utils.set_random_seed(setup.seed)
        self.network = network
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        self.loss = cross_entropy()
        # Adam's constants are explicit: defaults differ among frameworks. Keras' epsilon would be 1e-7.
        self.optimizer = _mixed.optimizer(setup, Adam(learning_rate=0.001, beta_1=0.9, beta_2=self.BETA2, epsilon=1e-8))
        self.steps = _mixed.Skipped(self.optimizer)
        self.optimizer.build(self.network.trainable_variables)
        self.fresh = [value.numpy() for value in self.optimizer.variables]
        # Traced at the first call and compiled to a graph, as people run it for speed.
        self.loss_and_gradients = function(self._loss_and_gradients)
        self.train_step = function(self._train_step, self.FASTER_BY_XLA)
        self.logits = function(self._logits)

    def load(self, parameters):
        self.fill(parameters)
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)
        self.steps.restart()

    def read(self):
        return self.canonical([value.numpy() for value in self.network.trainable_variables])

    def _loss_and_gradients(self, x, y):
        with tf.GradientTape() as tape:
            logits = tf.cast(self.network(x, training=True), tf.float32)
            # Layers may have added terms of their own; sum() of none is 0.
            loss = self.loss(y, logits) + sum(self.network.losses)
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
        # The gradient of an embedding is sparse.
        gradients = [tf.convert_to_tensor(value).numpy() for value in gradients]
        return logits.numpy(), float(loss), self.canonical(_mixed.unscaled(self.optimizer, gradients))

    def step(self, x, y):
        self.steps.add()
        return self.train_step(tf.constant(x), tf.constant(y))

    def skipped(self):
        return self.steps.count()

    def updates(self):
        return int(self.optimizer.iterations.numpy())

    def predict(self, x):
        return self.logits(tf.constant(x)).numpy()
