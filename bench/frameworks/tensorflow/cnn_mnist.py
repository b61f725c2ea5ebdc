"""The MNIST convolution network in TensorFlow: Keras layers, Adam, batches in file order, the training step as one tf.function.

Idiomatic here: TensorFlow convolves N, H, W, C on a CPU and cuDNN's N, C, H, W on a GPU (A1). With one channel an image is the same
in both; the dense layer's weights are permuted instead of its input.
"""

import keras
from keras import layers

from bench.frameworks.tensorflow._mnist import Trained
from bench.frameworks.tensorflow.framework import channels_first


def network(order):
    """order: "channels_first" | "channels_last"."""
    return keras.Sequential(
        [
            keras.Input((1, 28, 28) if order == "channels_first" else (28, 28, 1)),
            layers.Conv2D(16, 2, data_format=order, name="conv1"),  # A15: "valid" is no padding
            layers.MaxPooling2D(2, strides=2, data_format=order),  # A14; it leaves out an odd last row and column
            layers.ReLU(),  # A11: after the pool it is the same function on a quarter of the data
            layers.Conv2D(8, 2, data_format=order, name="conv2"),
            layers.MaxPooling2D(2, strides=2, data_format=order),
            layers.ReLU(),
            layers.Reshape((288,)),  # keeps the order in memory; Flatten would transpose channels-first images
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
        """Canonical weights -> Keras': kernels (kh, kw, in, out), dense (in, out)."""
        if name != "dense":
            return w.transpose(2, 3, 1, 0)
        return w.T if self.channels_first else w.reshape(10, 8, 6, 6).transpose(0, 2, 3, 1).reshape(10, 288).T

    def from_keras(self, name, w):
        if name != "dense":
            return w.transpose(3, 2, 0, 1)
        return w.T if self.channels_first else w.T.reshape(10, 6, 6, 8).transpose(0, 3, 1, 2).reshape(10, 288)
