"""The CIFAR-10 network in TensorFlow 1: variables, tf.nn operations, a MomentumOptimizer, one graph.

Idiomatic here: the graph is built once and finalised (B8). TensorFlow convolves N, H, W, C on a CPU and cuDNN's N, C, H, W on a GPU
(A1): the images are permuted once, before training, and the first dense layer's weights instead of its input.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from bench.frameworks.tensorflow_v1._loop import Trained
from bench.frameworks.tensorflow_v1.framework import channels_first

CONVOLUTIONS = (("conv1", 3, 50), ("conv2", 50, 50), ("conv3", 50, 100), ("conv4", 100, 100))
DENSE = (("dense1", 6400, 512), ("dense2", 512, 10))


class Training(Trained):
    def __init__(self, setup):
        self.first = channels_first()
        shapes = {name + ".w": (3, 3, inputs, outputs) for name, inputs, outputs in CONVOLUTIONS}
        shapes.update((name + ".w", (inputs, outputs)) for name, inputs, outputs in DENSE)
        shapes.update((name + ".b", (outputs,)) for name, _, outputs in CONVOLUTIONS + DENSE)
        images = (64, 3, 32, 32) if self.first else (64, 32, 32, 3)
        # A10: TensorFlow's momentum is v <- 0.9 v + g, w <- w - lr v: the specification's own form.
        optimizer = tf.train.MomentumOptimizer(learning_rate=0.01, momentum=0.9)
        super(Training, self).__init__(setup, images, tf.float32, shapes, optimizer)

    def network(self, x, training):
        order = "NCHW" if self.first else "NHWC"
        window = [1, 1, 2, 2] if self.first else [1, 2, 2, 1]
        p = self.variables

        def conv(x, name):  # A15: "SAME" is a padding of 1 for a 3 x 3 kernel of stride 1
            convolved = tf.nn.conv2d(x, p[name + ".w"], [1, 1, 1, 1], "SAME", data_format=order)
            return tf.nn.bias_add(convolved, p[name + ".b"], data_format=order)

        def pool(x):  # A14: the stride is said
            return tf.nn.max_pool(x, window, window, "VALID", data_format=order)

        def dense(x, name):
            return tf.matmul(x, p[name + ".w"]) + p[name + ".b"]

        def drop(x, rate):
            return tf.nn.dropout(x, rate=rate) if training else x

        x = tf.nn.relu(conv(x, "conv1"))
        x = drop(
            tf.nn.relu(pool(conv(x, "conv2"))), 0.25
        )  # A11: after the pool it is the same on a quarter of the data
        x = tf.nn.relu(conv(x, "conv3"))
        x = drop(tf.nn.relu(pool(conv(x, "conv4"))), 0.25)
        x = drop(tf.nn.relu(dense(tf.reshape(x, [-1, 6400]), "dense1")), 0.5)
        return dense(x, "dense2")

    def inputs(self, x, y):
        # A2: a permutation; exchanging axes 1 and 3 would also transpose the picture
        return (x if self.first else np.ascontiguousarray(x.transpose(0, 2, 3, 1))), y

    def to_own(self, parameters):
        """Kernels (kh, kw, in, out), dense (in, out)."""
        own = dict(parameters)
        for name, _, _ in CONVOLUTIONS:
            own[name + ".w"] = parameters[name + ".w"].transpose(2, 3, 1, 0)
        if not self.first:
            w = parameters["dense1.w"].reshape(512, 100, 8, 8).transpose(0, 2, 3, 1).reshape(512, 6400)
            own["dense1.w"] = w
        for name, _, _ in DENSE:
            own[name + ".w"] = own[name + ".w"].T
        return own

    def canonical(self, values):
        found = dict(values)
        for name, _, _ in CONVOLUTIONS:
            found[name + ".w"] = values[name + ".w"].transpose(3, 2, 0, 1)
        for name, _, _ in DENSE:
            found[name + ".w"] = values[name + ".w"].T
        if not self.first:
            w = found["dense1.w"].reshape(512, 8, 8, 100).transpose(0, 3, 1, 2).reshape(512, 6400)
            found["dense1.w"] = w
        return found
