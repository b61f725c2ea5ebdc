"""Further mistakes in TensorFlow's adapters: what dropout hides, digits, rows, and the smallest omissions."""

import keras
import tensorflow as tf

from bench.frameworks.tensorflow import cnn_cifar10, gru_imdb, mlp_mnist
from tests.contract.mutants import anywhere, later, omissions, readings, roundings
from tests.contract.mutants.registry import Planted
from tests.contract.mutants.tensorflow_cnn import InTraining, LayersInHalf, rates, with_optimizer

cnn, gru, mlp = (Planted("tensorflow", name, slow=True) for name in ("cnn-cifar10", "gru-imdb", "mlp-mnist"))
Cnn, Gru, Mlp = cnn_cifar10.Training, gru_imdb.Training, mlp_mnist.Training
cnn.of_any_framework(Cnn, anywhere.MORE + readings.OF_PICTURES + later.OF_LABELS[::2])
gru.of_any_framework(Gru, anywhere.MORE + readings.OF_IDS + readings.OF_IDS_IN_STEPS)
gru.of_any_framework(Gru, readings.OF_IDS_TOO + readings.OF_LABELS)
gru.of_any_framework(Gru, readings.OF_ANSWERS)
omissions.plant(cnn, Cnn, omissions.OF_CNN)
omissions.plant(gru, Gru, omissions.OF_GRU)
omissions.plant(mlp, Mlp, omissions.OF_MLP)


def in_half(values):
    """Values rounded to bfloat16's digits, whose gradient goes through unchanged."""
    return values + tf.stop_gradient(tf.cast(tf.cast(values, tf.bfloat16), tf.float32) - values)


def dropouts(training):
    return [layer for layer in training.network.layers if isinstance(layer, keras.layers.Dropout)]


# -- the CIFAR-10 network ----------------------------------------------------------------------------------------------


class WithRates(Cnn):
    """Other rates of dropout in the three places."""

    def __init__(self, setup):
        super().__init__(setup)
        rates(self, self.RATES)


@cnn.mistake("dropout")
class DropoutAfterTheDenseLayerOnly(WithRates):
    """Dropout 0.5 after the dense layer, none after the pools."""

    RATES = 0.0, 0.0, 0.5


@cnn.mistake("dropout")
class LastDropoutLeftOut(WithRates):
    """Dropout 0.25 after the pools, none after the dense layer."""

    RATES = 0.25, 0.25, 0.0


@cnn.mistake("dropout")
class DropoutAFifthLess(WithRates):
    """Dropout 0.2, 0.2, 0.4."""

    RATES = 0.2, 0.2, 0.4


class WithDropouts(Cnn):
    """A subclass changes what each dropout layer computes in training."""

    def __init__(self, setup):
        super().__init__(setup)
        for layer in dropouts(self):
            layer.call = lambda h, training=False, layer=layer: self.dropped(h, layer.rate) if training else h


@cnn.mistake("dropout")
class NoDropout(WithDropouts):
    """The network is never in training mode."""

    def dropped(self, h, rate):
        return h


@cnn.mistake("dropout")
class DropoutNotScaled(WithDropouts):
    """What dropout keeps is not divided by the probability to be kept."""

    def dropped(self, h, rate):
        return tf.nn.dropout(h, rate) * (1 - rate)


@cnn.mistake("dropout")
class TheSameMaskForAllPictures(WithDropouts):
    """One mask for all pictures of a batch (noise_shape)."""

    def dropped(self, h, rate):
        return tf.nn.dropout(h, rate, noise_shape=[1, *h.shape[1:]])


@cnn.mistake("dropout")
class TheSameMaskInEveryStep(WithDropouts):
    """Dropout draws its masks with one seed in every step."""

    def dropped(self, h, rate):
        return tf.nn.experimental.stateless_dropout(h, rate, seed=[1, 2])


@cnn.mistake("precision")
class FirstConvolutionInHalfInTraining(LayersInHalf):
    """The first convolution, and only it, computes in bfloat16 where dropout is on."""

    LAYERS = ("conv1",)


class Rounded(InTraining):
    """What some layers return is rounded to bfloat16 where dropout is on."""

    def __init__(self, setup):
        super().__init__(setup)
        for layer in (self.network.get_layer(name) for name in self.LAYERS):
            call = layer.call
            layer.call = lambda h, training=None, call=call: in_half(call(h)) if self.wrong else call(h)


@cnn.mistake("precision", not_caught=roundings.SUMMED)
class ConvolutionsRoundedInTraining(Rounded):
    """What each convolution returns is rounded to bfloat16 where dropout is on."""

    LAYERS = ("conv1", "conv2", "conv3", "conv4")


@cnn.mistake("precision")
class DenseLayerRoundedInTraining(Rounded):
    """What the first dense layer returns is rounded to bfloat16 where dropout is on."""

    LAYERS = ("dense1",)


@cnn.mistake("evaluation")
class EvaluationInHalf(Cnn):
    """The evaluation rounds pictures and logits to bfloat16."""

    def _logits(self, x):
        return in_half(super()._logits(in_half(x)))


# -- the IMDB network --------------------------------------------------------------------------------------------------


class WithGradients(Gru):
    """A subclass changes the gradients where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        self.measured = setup.training

    def _loss_and_gradients(self, x, y):
        logits, loss, gradients = super()._loss_and_gradients(x, y)
        if self.measured:
            gradients = [self.changed(tf.convert_to_tensor(gradient), x) for gradient in gradients]
        return logits, loss, gradients


@gru.mistake("precision")
class GradientsInHalf(WithGradients):
    """Gradients are rounded to bfloat16 before Adam, as an exchange between devices would round them."""

    def changed(self, gradient, x):
        return tf.cast(tf.cast(gradient, tf.bfloat16), tf.float32)


@gru.mistake("precision")
class EmbeddedRoundedInTraining(Gru):
    """What the embedding returns is rounded to bfloat16 where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        embedding, measured = self.network.layers[0], setup.training
        call = embedding.call
        embedding.call = lambda x: in_half(call(x)) if measured else call(x)


@gru.mistake("precision")
class StateRoundedInTraining(Gru):
    """The last state is rounded to bfloat16 where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        dense, measured = self.network.layers[-1], setup.training
        call = dense.call
        dense.call = lambda h, training=None: call(in_half(h) if measured else h)


@gru.mistake("padding")
class GradientByFrequency(WithGradients):
    """The gradient of a word is divided by how often the batch has it."""

    def changed(self, gradient, x):
        return gradient / tf.maximum(1.0, counts(x))[:, None] if gradient.shape[0] == 30000 else gradient


@gru.mistake("padding")
class WordsOfTwoReviewsOnly(WithGradients):
    """Only words that a batch has twice or more are trained."""

    def changed(self, gradient, x):
        return gradient * tf.cast(counts(x) > 1, tf.float32)[:, None] if gradient.shape[0] == 30000 else gradient


def counts(x):
    """How often a batch has each id."""
    return tf.scatter_nd(tf.reshape(tf.cast(x, tf.int32), [-1, 1]), tf.ones(tf.size(x)), [30000])


@gru.mistake("regularisation")
class AdamW(Gru):
    """Adam with Keras' weight decay of 0.004."""

    def __init__(self, setup):
        super().__init__(setup)
        own = type(self.optimizer)
        with_optimizer(self, own(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8, weight_decay=0.004))
