"""ResNet-50's features in TensorFlow 1: variables, tf.nn operations, one graph for batches of any size.

Idiomatic here: the graph is built once and finalised. The normalisation is the fused operation (TensorFlow's performance guide).
TensorFlow convolves channels last (N, H, W, C) on a CPU, and channels first, the layout that cuDNN computes in, on a GPU.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from bench import contract
from bench.frameworks.tensorflow_v1 import framework
from bench.frameworks.tensorflow_v1._loop import to_own
from bench.workloads.resnet50_features import EPSILON, PARAMETERS, SHAPE, blocks

# The parameters of a normalisation.
ENDS = ("weight", "bias", "running_mean", "running_var")


class Inference(contract.Inference):
    def __init__(self, setup):
        self.first = framework.channels_first()
        self.order = "NCHW" if self.first else "NHWC"
        with tf.Graph().as_default() as graph:
            x = tf.placeholder(tf.float32, (None,) + (SHAPE if self.first else SHAPE[1:] + SHAPE[:1]))
            self.variables = {
                spec.name: tf.get_variable(spec.name, own_shape(spec.shape), trainable=False) for spec in PARAMETERS
            }
            features = self.network(x)
            self.session = framework.session(graph)
            # A callable fixes its feeds and fetches once. feed_dict would look them up for every batch.
            self.features = self.session.make_callable(features, [x])

    def network(self, x):
        x = tf.nn.relu(self.normalised(x, "conv1", "bn1", 2, 3))
        # ReLU leaves nothing below zero: zeros at the border do not change the maximum.
        window, strides = ([1, 1, n, n] if self.first else [1, n, n, 1] for n in (3, 2))
        x = tf.nn.max_pool(tf.pad(x, self.padding(1)), window, strides, "VALID", data_format=self.order)
        for name, _, stride, shortcut in blocks():
            x = self.bottleneck(x, name, stride, shortcut)
        return tf.reduce_mean(x, [2, 3] if self.first else [1, 2])

    def bottleneck(self, x, name, stride, shortcut):
        h = tf.nn.relu(self.normalised(x, name + ".conv1", name + ".bn1"))
        h = tf.nn.relu(self.normalised(h, name + ".conv2", name + ".bn2", stride, 1))
        h = self.normalised(h, name + ".conv3", name + ".bn3")
        if shortcut:
            x = self.normalised(x, name + ".downsample.0", name + ".downsample.1", stride)
        return tf.nn.relu(h + x)

    def normalised(self, x, convolution, norm, stride=1, pad=0):
        strides = [1, 1, stride, stride] if self.first else [1, stride, stride, 1]
        w = self.variables[convolution + ".weight"]
        x = tf.nn.conv2d(x, w, strides, self.padding(pad), data_format=self.order)
        own = [self.variables["%s.%s" % (norm, end)] for end in ENDS]
        # Evaluation uses the running statistics.
        return tf.nn.fused_batch_norm(x, *own, EPSILON, data_format=self.order, is_training=False)[0]

    def padding(self, size):
        """Padding is explicit: with stride 2 "SAME" pads one row less before than after, or none."""
        image, none = [[size, size]] * 2, [[0, 0]]
        return none * 2 + image if self.first else none + image + none

    def load(self, parameters):
        """All variables in one run: loading them one by one would optimise the graph 265 times."""
        initializers = {name: self.variables[name].initializer for name in parameters}
        values = {initializers[name].inputs[1]: to_own(value) for name, value in parameters.items()}
        self.session.run(list(initializers.values()), values)

    def inputs(self, x):
        # A permutation: exchanging axes 1 and 3 would also transpose the picture.
        return x if self.first else np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    def predict(self, x):
        # No gradients in evaluation: they cost memory and time. This graph has none.
        return self.features(x)


def own_shape(shape):
    return shape[2:] + shape[1::-1] if len(shape) == 4 else shape
