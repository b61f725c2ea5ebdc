"""The CIFAR-10 network in TensorFlow 1: variables, tf.nn operations, a MomentumOptimizer, one graph.

Idiomatic here: the graph is built once and finalised. TensorFlow convolves channels last (N, H, W, C) on a CPU, and channels first
(N, C, H, W), the layout that cuDNN computes in, on a GPU. The images are permuted once, before training. For the first dense layer its
weights are permuted, not its input.
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
        # Momentum: v = m v + g; w = w - rate v, without dampening or Nesterov.
        optimizer = tf.train.MomentumOptimizer(learning_rate=0.01, momentum=0.9)
        super(Training, self).__init__(setup, images, tf.float32, shapes, optimizer)

    def network(self, x, training):
        order = "NCHW" if self.first else "NHWC"
        window = [1, 1, 2, 2] if self.first else [1, 2, 2, 1]
        p = self.variables

        # Stride and padding are explicit: defaults differ among frameworks. "SAME" pads a 3 x 3 kernel by 1.
        def conv(x, name):
            convolved = tf.nn.conv2d(x, p[name + ".w"], [1, 1, 1, 1], "SAME", data_format=order)
            return tf.nn.bias_add(convolved, p[name + ".b"], data_format=order)

        def pool(x):
            return tf.nn.max_pool(x, window, window, "VALID", data_format=order)

        def dense(x, name):
            return tf.matmul(x, p[name + ".w"]) + p[name + ".b"]

        # Dropout only in training.
        def drop(x, rate):
            return tf.nn.dropout(x, rate=rate) if training else x

        x = tf.nn.relu(conv(x, "conv1"))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = drop(tf.nn.relu(pool(conv(x, "conv2"))), 0.25)
        x = tf.nn.relu(conv(x, "conv3"))
        x = drop(tf.nn.relu(pool(conv(x, "conv4"))), 0.25)
        x = drop(tf.nn.relu(dense(tf.reshape(x, [-1, 6400]), "dense1")), 0.5)
        return dense(x, "dense2")

    def inputs(self, x, y):
        # A permutation: exchanging axes 1 and 3 would also transpose the picture.
        return (x if self.first else np.ascontiguousarray(x.transpose(0, 2, 3, 1))), y

    def to_own(self, parameters):
        own = super(Training, self).to_own(parameters)
        if not self.first:
            w = parameters["dense1.w"].reshape(512, 100, 8, 8).transpose(0, 2, 3, 1)
            own["dense1.w"] = w.reshape(512, 6400).T
        return own

    def canonical(self, values):
        tensors = super(Training, self).canonical(values)
        if not self.first:
            tensors["dense1.w"] = tensors["dense1.w"].reshape(512, 8, 8, 100).transpose(0, 3, 1, 2).reshape(512, 6400)
        return tensors
