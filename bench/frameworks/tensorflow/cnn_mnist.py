"""The MNIST convolution network in TensorFlow: Keras layers, Adam, batches in file order, the training step as one tf.function.

Idiomatic here: TensorFlow convolves channels last (N, H, W, C) on a CPU, and channels first (N, C, H, W), the layout that cuDNN computes
in, on a GPU. With one channel an image is the same in both. For the dense layer its weights are permuted, not its input.
"""

import keras
from keras import layers

from bench.frameworks.tensorflow._layouts import canonical, to_own
from bench.frameworks.tensorflow._mnist import Trained
from bench.frameworks.tensorflow.framework import channels_first


def network(order):
    """order: "channels_first" | "channels_last"."""
    return keras.Sequential(
        [
            keras.Input((1, 28, 28) if order == "channels_first" else (28, 28, 1)),
            # Keras pads only where asked to. The pooling leaves out an odd last row and column.
            layers.Conv2D(16, 2, data_format=order, name="conv1"),
            # ReLU after the pooling: the same values, a quarter of the work.
            layers.MaxPooling2D(2, strides=2, data_format=order),
            layers.ReLU(),
            layers.Conv2D(8, 2, data_format=order, name="conv2"),
            layers.MaxPooling2D(2, strides=2, data_format=order),
            layers.ReLU(),
            # Reshape keeps the order in memory. Flatten would transpose channels-first images.
            layers.Reshape((288,)),
            layers.Dense(10, name="dense"),
        ]
    )


class Training(Trained):
    LAYERS = ("conv1", "conv2", "dense")

    def __init__(self, setup):
        self.channels_first = channels_first()
        super().__init__(setup, network("channels_first" if self.channels_first else "channels_last"))

    def inputs(self, x, y):
        return super().inputs(x if self.channels_first else x.reshape(len(x), 28, 28, 1), y)

    def to_keras(self, name, w):
        if name == "dense" and not self.channels_first:
            w = w.reshape(10, 8, 6, 6).transpose(0, 2, 3, 1).reshape(10, 288)
        return to_own(w)

    def from_keras(self, name, w):
        w = canonical(w)
        if name == "dense" and not self.channels_first:
            w = w.reshape(10, 6, 6, 8).transpose(0, 3, 1, 2).reshape(10, 288)
        return w
