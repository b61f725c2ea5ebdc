"""The MNIST convolution network in Keras 3: a Sequential of layers, Adam, batches in file order; the same file on every backend.

Idiomatic here: images have the layout in which the backend computes. With one channel an image is the same in both layouts. The dense
layer's weights are permuted instead of its input.
"""

import keras
from keras import layers

from bench.frameworks.keras._mnist import Trained


def network(first):
    return keras.Sequential(
        [
            keras.Input((1, 28, 28) if first else (28, 28, 1)),
            # Keras pads only where asked to. The pooling leaves out an odd last row and column.
            layers.Conv2D(16, 2, name="conv1"),
            layers.MaxPooling2D(2, strides=2),
            # ReLU after the pooling: the same values, a quarter of the work.
            layers.ReLU(),
            layers.Conv2D(8, 2, name="conv2"),
            layers.MaxPooling2D(2, strides=2),
            layers.ReLU(),
            # Reshape keeps the order in memory. Flatten would transpose channels-first images.
            layers.Reshape((288,)),
            layers.Dense(10, name="dense"),
        ]
    )


class Training(Trained):
    LAYERS = ("conv1", "conv2", "dense")

    def __init__(self, setup):
        self.channels_first = keras.config.image_data_format() == "channels_first"
        super().__init__(setup, network(self.channels_first))

    def inputs(self, x, y):
        return super().inputs(x if self.channels_first else x.reshape(len(x), 28, 28, 1), y)

    def to_keras(self, name, w):
        """Canonical weights -> Keras': kernels (kh, kw, in, out), dense (in, out)."""
        if name != "dense":
            return w.transpose(2, 3, 1, 0)
        return w.T if self.channels_first else w.reshape(10, 8, 6, 6).transpose(0, 2, 3, 1).reshape(10, 288).T

    def from_keras(self, name, w):
        if name != "dense":
            return w.transpose(3, 2, 0, 1)
        return w.T if self.channels_first else w.T.reshape(10, 6, 6, 8).transpose(0, 3, 1, 2).reshape(10, 288)
