"""The MNIST perceptron in TensorFlow 1: variables, tf.matmul, Adam, the whole set as one batch, one graph.

Idiomatic here: the graph is built once and finalised. Its session keeps the batch on the device: nothing is copied in a step.
"""

import tensorflow.compat.v1 as tf

from bench.frameworks.tensorflow_v1._adam import Adam
from bench.frameworks.tensorflow_v1._loop import Resident

SHAPES = {"dense1.w": (784, 32), "dense1.b": (32,), "dense2.w": (32, 10), "dense2.b": (10,)}


class Training(Resident):
    def __init__(self, setup):
        # Adam's constants are explicit: defaults differ among frameworks.
        optimizer = Adam(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8)
        super(Training, self).__init__(setup, (None, 784), tf.float32, SHAPES, optimizer)

    def network(self, x, training):
        p = self.variables
        x = tf.nn.relu(tf.matmul(x, p["dense1.w"]) + p["dense1.b"])
        return tf.matmul(x, p["dense2.w"]) + p["dense2.b"]

    def inputs(self, x, y):
        return super(Training, self).inputs(x.reshape(len(x), 784), y)
