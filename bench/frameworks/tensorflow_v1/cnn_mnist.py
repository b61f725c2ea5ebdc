"""The MNIST convolution network in TensorFlow 1: variables, tf.nn operations, Adam, batches in file order, one graph.

Idiomatic here: TensorFlow convolves channels last (N, H, W, C) on a CPU, and channels first (N, C, H, W), the layout that cuDNN computes
in, on a GPU. With one channel an image is the same in both. For the dense layer its weights are permuted, not its input. The
session keeps the batches on the device: nothing is copied in a step.
"""

import tensorflow.compat.v1 as tf

from bench.frameworks.tensorflow_v1._adam import Adam
from bench.frameworks.tensorflow_v1._loop import Resident
from bench.frameworks.tensorflow_v1.framework import channels_first

SHAPES = {
    "conv1.w": (2, 2, 1, 16),
    "conv1.b": (16,),
    "conv2.w": (2, 2, 16, 8),
    "conv2.b": (8,),
    "dense.w": (288, 10),
    "dense.b": (10,),
}


class Training(Resident):
    def __init__(self, setup):
        self.first = channels_first()
        images = (None, 1, 28, 28) if self.first else (None, 28, 28, 1)
        # Adam's constants are explicit: defaults differ among frameworks.
        optimizer = Adam(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8)
        super(Training, self).__init__(setup, images, tf.float32, SHAPES, optimizer)

    def network(self, x, training):
        order = "NCHW" if self.first else "NHWC"
        window = [1, 1, 2, 2] if self.first else [1, 2, 2, 1]
        p = self.variables

        # Stride and padding are explicit: defaults differ among frameworks. "VALID" does not pad.
        def conv(x, name):
            convolved = tf.nn.conv2d(x, p[name + ".w"], [1, 1, 1, 1], "VALID", data_format=order)
            return tf.nn.bias_add(convolved, p[name + ".b"], data_format=order)

        # The pooling leaves out an odd last row and column.
        def pool(x):
            return tf.nn.max_pool(x, window, window, "VALID", data_format=order)

        # ReLU after the pooling: the same values, a quarter of the work.
        x = tf.nn.relu(pool(conv(x, "conv1")))
        x = tf.nn.relu(pool(conv(x, "conv2")))
        return tf.matmul(tf.reshape(x, [-1, 288]), p["dense.w"]) + p["dense.b"]

    def inputs(self, x, y):
        return super(Training, self).inputs(x if self.first else x.reshape(len(x), 28, 28, 1), y)

    def to_own(self, parameters):
        own = super(Training, self).to_own(parameters)
        if not self.first:
            own["dense.w"] = parameters["dense.w"].reshape(10, 8, 6, 6).transpose(0, 2, 3, 1).reshape(10, 288).T
        return own

    def canonical(self, values):
        tensors = super(Training, self).canonical(values)
        if not self.first:
            tensors["dense.w"] = tensors["dense.w"].reshape(10, 6, 6, 8).transpose(0, 3, 1, 2).reshape(10, 288)
        return tensors
