"""Mistakes in the IMDB network in TensorFlow."""

import keras
import tensorflow as tf
from keras import layers

from bench.frameworks.tensorflow import gru_imdb
from tests.contract.mutants import anywhere, later, rows, wrong_items
from tests.contract.mutants.registry import Planted
from tests.contract.mutants.tensorflow_cnn import with_optimizer

gru = Planted("tensorflow", "gru-imdb")
Training = gru_imdb.Training
gru.of_any_framework(Training, anywhere.EVERYWHERE)
gru.of_any_framework(Training, wrong_items.EVERYWHERE)
gru.of_any_framework(Training, later.LATER)


class WithNetwork(Training):
    """A subclass gives the options of the embedding and of the GRU, and how many of the last positions are read."""

    # Pairs of an option and its value.
    EMBEDDING, GRU, LAST = (), (), 150

    def __init__(self, setup):
        own = gru_imdb.network
        gru_imdb.network = self.changed
        try:
            super().__init__(setup)
        finally:
            gru_imdb.network = own

    def changed(self):
        ids = keras.Input((150,), dtype="int32", **({"batch_size": 64} if dict(self.GRU).get("stateful") else {}))
        embedded = layers.Embedding(30000, 125, **dict(self.EMBEDDING))(ids[:, -self.LAST :])
        return keras.Model(ids, layers.Dense(2)(layers.GRU(100, reset_after=True, **dict(self.GRU))(embedded)))


@gru.rewrite
class Functional(WithNetwork):
    """The same layers by Keras' functional interface."""


@gru.mistake("length")
class Last45Positions(WithNetwork):
    """The last 45 of 150 positions only."""

    LAST = 45


@gru.mistake("length")
class Last149Positions(WithNetwork):
    """All positions but the first."""

    LAST = 149


@gru.mistake("length")
class ReadBackwards(WithNetwork):
    """The reviews are read from their end to their beginning (go_backwards)."""

    GRU = (("go_backwards", True),)


@gru.mistake("padding")
class PaddingMasked(WithNetwork):
    """The positions of id 0 are masked (mask_zero)."""

    EMBEDDING = (("mask_zero", True),)


# A stateful layer has a fixed batch: the workload's.
@gru.mistake("state", steps=6)
class StateCarriedOver(WithNetwork):
    """A batch begins with the state that the batch before ended with (stateful)."""

    GRU = (("stateful", True),)


@gru.mistake("dropout")
class RecurrentDropout(WithNetwork):
    """Dropout 0.1 of the state in training, where the workload has none."""

    GRU = (("recurrent_dropout", 0.1),)


@gru.mistake("network")
class HardSigmoid(WithNetwork):
    """The gates by a piecewise linear sigmoid, as old Keras had it."""

    GRU = (("recurrent_activation", "hard_sigmoid"),)


@gru.mistake("optimiser")
class AdamOfKeras(Training):
    """Keras' own Adam: epsilon added to the root of the uncorrected moment."""

    def __init__(self, setup):
        super().__init__(setup)
        with_optimizer(self, keras.optimizers.Adam(0.001, epsilon=1e-8))


@gru.mistake("optimiser")
class LazyAdam(Training):
    """Rows of the embedding without a gradient keep their weights."""

    def _train_step(self, x, y):
        embedding = self.network.trainable_variables[0]
        before = tf.identity(embedding)
        loss = super()._train_step(x, y)
        used = tf.scatter_nd(tf.reshape(tf.cast(x, tf.int32), [-1, 1]), tf.ones(tf.size(x)), [30000])
        embedding.assign(tf.where(used[:, None] > 0, embedding, before))
        return loss


@gru.mistake("optimiser")
class AmsGrad(Training):
    """AMSGrad, with Keras' place of epsilon."""

    def __init__(self, setup):
        super().__init__(setup)
        with_optimizer(self, keras.optimizers.Adam(0.001, epsilon=1e-8, amsgrad=True))


@gru.mistake("measured object")
class EmbeddingFrozenInTraining(Training):
    """The embedding is not updated where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        self.frozen = setup.training

    def _train_step(self, x, y):
        embedding = self.network.trainable_variables[0]
        before = tf.identity(embedding)
        loss = super()._train_step(x, y)
        if self.frozen:
            embedding.assign(before)
        return loss


class WithRows(Training):
    """Some rows of the embedding have a factor, where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        self.training = setup.training

    def _loss_and_gradients(self, x, y):
        logits, loss, gradients = super()._loss_and_gradients(x, y)
        if self.training:
            gradients[0] = tf.convert_to_tensor(gradients[0]) * self.FACTORS
        return logits, loss, gradients

    def _train_step(self, x, y):
        loss = super()._train_step(x, y)
        embedding = self.network.trainable_variables[0]
        if self.training and (self.AFTER != 1).any():
            embedding.assign(embedding * self.AFTER)
        return loss


rows.plant(gru, WithRows)
