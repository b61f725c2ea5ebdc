"""Mistakes in the CIFAR-10 network in TensorFlow."""

import functools

import keras
import tensorflow as tf
from keras import layers

from bench.frameworks.tensorflow import cnn_cifar10
from bench.frameworks.tensorflow.framework import function
from tests.contract.mutants import anywhere, roundings
from tests.contract.mutants.registry import Planted

cnn = Planted("tensorflow", "cnn-cifar10")
Training = cnn_cifar10.Training
cnn.of_any_framework(Training, anywhere.EVERYWHERE)


def rates(training, values):
    """Set the rates of the three dropout layers, before anything is traced."""
    dropouts = [layer for layer in training.network.layers if isinstance(layer, layers.Dropout)]
    for layer, rate in zip(dropouts, values, strict=True):
        layer.rate = rate


def with_optimizer(training, optimizer):
    training.optimizer = optimizer
    optimizer.build(training.network.trainable_variables)
    training.fresh = [value.numpy() for value in optimizer.variables]
    training.steps._optimizer = optimizer


@cnn.rewrite
class Eager(Training):
    """Without a graph: operation by operation."""

    def __init__(self, setup):
        super().__init__(setup)
        self.loss_and_gradients, self.train_step = self._loss_and_gradients, functools.partial(self._train_step)
        # The setting that is read from a step which is a function of TensorFlow's.
        self.train_step._jit_compile = False


@cnn.mistake("dropout")
class GluonsDropout(Training):
    """Dropout 0.25 in all three places, as Gluon's example had it."""

    def __init__(self, setup):
        super().__init__(setup)
        rates(self, (0.25, 0.25, 0.25))


@cnn.mistake("dropout", slow=True)
class KeepAndDropSwapped(Training):
    """The probability to keep where that to drop is asked for: 0.75, 0.75, 0.5."""

    def __init__(self, setup):
        super().__init__(setup)
        rates(self, (0.75, 0.75, 0.5))


@cnn.mistake("evaluation", slow=True)
class DropoutInEvaluation(Training):
    """The evaluation calls the network with training=True."""

    def predict(self, x):
        return self.network(tf.constant(x), training=self.dropout).numpy()


@cnn.mistake("optimiser")
class Nesterov(Training):
    """Nesterov's momentum."""

    def __init__(self, setup):
        super().__init__(setup)
        with_optimizer(self, keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True))


@cnn.mistake("regularisation", slow=True)
class WeightDecay(Training):
    """Keras' weight decay of 0.004, which an optimiser may have."""

    def __init__(self, setup):
        super().__init__(setup)
        with_optimizer(self, keras.optimizers.SGD(0.01, momentum=0.9, weight_decay=0.004))


@cnn.mistake("regularisation", slow=True)
class ValuesClipped(Training):
    """Every value of the gradient is cut at 0.01."""

    def __init__(self, setup):
        super().__init__(setup)
        with_optimizer(self, keras.optimizers.SGD(0.01, momentum=0.9, clipvalue=0.01))


@cnn.mistake("schedule", slow=True)
class DecayingRate(Training):
    """The learning rate halves every ten steps."""

    def __init__(self, setup):
        super().__init__(setup)
        schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.5)
        with_optimizer(self, keras.optimizers.SGD(schedule, momentum=0.9))


@cnn.mistake("state", slow=True)
class FirstBatchInTheGraph(Training):
    """The first batch is traced into the graph as a constant."""

    def __init__(self, setup):
        super().__init__(setup)
        step = self._train_step
        self.first = None
        self.train_step = function(lambda x, y: step(*self.first))

    def step(self, x, y):
        self.first = self.first or (tf.constant(x), tf.constant(y))
        return super().step(x, y)


@cnn.mistake("loss")
class DoubleSoftmax(Training):
    """Softmax before a loss that has its own."""

    def __init__(self, setup):
        super().__init__(setup)
        loss = self.loss
        # Keras looks for a softmax right before its loss, and undoes it.
        self.loss = lambda y, logits: loss(y, 1.0 * tf.nn.softmax(logits))


class InTraining(Training):
    """Something is wrong in the training step only, where dropout is on."""

    wrong = False

    def _train_step(self, x, y):
        self.wrong = self.dropout
        loss = super()._train_step(x, y)
        self.wrong = False
        return loss


class LayersInHalf(InTraining):
    """Some layers, and only they, compute in a half type where dropout is on."""

    LAYERS = ("conv1", "conv2", "conv3", "conv4")
    TYPE = tf.bfloat16

    def __init__(self, setup):
        super().__init__(setup)
        for layer in (self.network.get_layer(name) for name in self.LAYERS):
            layer.call = functools.partial(self.halved, layer, layer.call)

    def halved(self, layer, call, x):
        if not self.wrong:
            return call(x)
        y = tf.nn.conv2d(tf.cast(x, self.TYPE), tf.cast(layer.kernel, self.TYPE), 1, "SAME")
        # The bias in float32: TensorFlow sums its gradient in the half type, which the gates see by itself.
        return tf.cast(y, tf.float32) + layer.bias


@cnn.mistake("precision")
class ConvolutionsInHalfInTraining(LayersInHalf):
    """The convolutions, and only they, compute in bfloat16 where dropout is on."""


@cnn.mistake("precision", slow=True)
class ConvolutionsInFloat16InTraining(LayersInHalf):
    """The convolutions, and only they, compute in float16 where dropout is on."""

    TYPE = tf.float16


@cnn.mistake("precision", slow=True)
class OneConvolutionInHalfInTraining(LayersInHalf):
    """The third convolution, and only it, computes in bfloat16 where dropout is on."""

    LAYERS = ("conv3",)


@cnn.mistake("precision", slow=True)
class OneGradientInHalfInTraining(InTraining):
    """The gradient of the fourth convolution's weights is rounded to bfloat16 where dropout is on."""

    def _loss_and_gradients(self, x, y):
        logits, loss, gradients = super()._loss_and_gradients(x, y)
        if self.wrong:
            kernel = self.network.get_layer("conv4").kernel
            at = [variable is kernel for variable in self.network.trainable_variables].index(True)
            gradients[at] = tf.cast(tf.cast(gradients[at], tf.bfloat16), tf.float32)
        return logits, loss, gradients


class WithRounding(InTraining):
    """The gradient of one layer's weights is rounded where dropout is on."""

    def _loss_and_gradients(self, x, y):
        logits, loss, gradients = super()._loss_and_gradients(x, y)
        if self.wrong:
            kernel = self.network.get_layer(self.LAYER).kernel
            at = [variable is kernel for variable in self.network.trainable_variables].index(True)
            gradients[at] = self.rounded(gradients[at])
        return logits, loss, gradients

    def rounded(self, gradient):
        if self.TYPE[0] != "TensorFloat-32":
            return tf.cast(tf.cast(gradient, self.TYPE[0]), tf.float32)
        return tf.bitcast(tf.bitwise.bitwise_and(tf.bitcast(gradient, tf.int32), -(2**13)), tf.float32)


roundings.plant(cnn, WithRounding)
