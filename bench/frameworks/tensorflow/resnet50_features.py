"""ResNet-50's features in TensorFlow: tf.nn's operations on variables in a tf.Module, the forward pass as one tf.function.

Idiomatic here: the function is traced once for each size of batch. The normalisation is the fused operation, which the graph optimiser
can join with its convolution (TensorFlow's guide to Grappler: the remapper). TensorFlow convolves channels last (N, H, W, C) on a CPU,
and channels first, the layout that cuDNN computes in, on a GPU.
"""

import numpy as np
import tensorflow as tf

from bench import contract
from bench.frameworks.tensorflow._layouts import padding, to_own
from bench.frameworks.tensorflow.framework import channels_first, function
from bench.workloads.resnet50_features import EPSILON, PARAMETERS, blocks

# The parameters of a normalisation.
ENDS = ("weight", "bias", "running_mean", "running_var")


class Network(tf.Module):
    SPECIFICATIONS = PARAMETERS

    def __init__(self, first):
        """first: whether images are N, C, H, W."""
        super().__init__()
        self.order = "NCHW" if first else "NHWC"
        self.p = {spec.name: self.variable(spec) for spec in self.SPECIFICATIONS}

    def variable(self, spec):
        return tf.Variable(to_own(np.zeros(spec.shape, np.float32)), False)

    def __call__(self, x):
        x = tf.nn.relu(self.normalised(x, "conv1", "bn1", 2, 3))
        # ReLU leaves nothing below zero: zeros at the border do not change the maximum. XLA's pooling has no explicit padding.
        x = tf.nn.max_pool2d(tf.pad(x, padding(1, self.order)), 3, 2, "VALID", data_format=self.order)
        for name, _, stride, shortcut in blocks():
            x = self.bottleneck(x, name, stride, shortcut)
        return tf.reduce_mean(x, [2, 3] if self.order == "NCHW" else [1, 2])

    def bottleneck(self, x, name, stride, shortcut):
        h = tf.nn.relu(self.normalised(x, name + ".conv1", name + ".bn1"))
        h = tf.nn.relu(self.normalised(h, name + ".conv2", name + ".bn2", stride, 1))
        h = self.normalised(h, name + ".conv3", name + ".bn3")
        if shortcut:
            x = self.normalised(x, name + ".downsample.0", name + ".downsample.1", stride)
        return tf.nn.relu(h + x)

    def normalised(self, x, convolution, norm, stride=1, pad=0):
        x = tf.nn.conv2d(x, self.p[convolution + ".weight"], stride, padding(pad, self.order), data_format=self.order)
        return self.normalise(x, *(self.p["%s.%s" % (norm, end)] for end in ENDS))

    # Evaluation uses the running statistics.
    def normalise(self, x, scale, offset, mean, variance):
        return tf.compat.v1.nn.fused_batch_norm(
            x, scale, offset, mean, variance, EPSILON, data_format=self.order, is_training=False
        )[0]


class Inference(contract.Inference):
    def __init__(self, setup):
        self.channels_first = channels_first()
        self.network = Network(self.channels_first)
        self.features = function(self.network)

    def load(self, parameters):
        for name, value in parameters.items():
            self.network.p[name].assign(to_own(value))

    def inputs(self, x):
        # A permutation: exchanging axes 1 and 3 would also transpose the picture.
        return x if self.channels_first else np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        return self.features(tf.constant(x)).numpy()
