"""What Keras 2 and 3 call differently, under one name each. TensorFlow up to 2.15 has Keras 2."""

import keras
import tensorflow as tf

KERAS_2 = keras.__version__.startswith("2.")

if KERAS_2:
    from bench.frameworks.tensorflow._keras2 import SGD, Adam
else:
    from keras.optimizers import SGD

    from bench.frameworks.keras._adam import Adam

__all__ = ["KERAS_2", "SGD", "Adam", "cross_entropy", "loop", "with_weights"]


def cross_entropy():
    """The mean of softmax and cross-entropy over a batch. A replica's is divided by the number of replicas, which Keras 2 leaves to us."""
    if not KERAS_2:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    of_each = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    return lambda y, logits: tf.reduce_mean(of_each(y, logits)) / tf.distribute.get_strategy().num_replicas_in_sync


def loop(chosen):
    """Options of a recurrent layer: where `chosen`, a loop that XLA can compile, else cuDNN's kernel where there is one.

    Keras 2 has no such option: its layers leave the choice to the graph's compiler.
    """
    return {} if KERAS_2 else {"use_cudnn": False if chosen else "auto"}


def with_weights(layer):
    """A built recurrent layer as a function of its input and its three weights."""
    if not KERAS_2:
        return lambda x, *weights: layer.stateless_call(weights, layer.non_trainable_variables, x)[0]

    def call(x, *weights):
        layer.cell.kernel, layer.cell.recurrent_kernel, layer.cell.bias = weights
        return layer(x)

    return call
