"""DenseNet-121 in TensorFlow: tf.nn's operations on variables in a tf.Module, the training step as one tf.function.

Idiomatic here: the step is traced once for each size of batch. In training the fused normalisation returns the batch's mean and unbiased
variance; assignments in the same graph update the running statistics, of which each replica has its own. Gradients are added up and
variables updated as TensorFlow's guide to custom training with tf.distribute.Strategy shows. TensorFlow convolves channels last (N, H, W,
C) on a CPU, and channels first, the layout that cuDNN computes in, on a GPU.
"""

import tensorflow as tf

from bench.batch_norm import EPSILON
from bench.frameworks.tensorflow import _adam
from bench.frameworks.tensorflow._layouts import padding
from bench.frameworks.tensorflow._pictures import Optimizer, Trained, normalised_in_training, own_variable, trained
from bench.frameworks.tensorflow.framework import channels_first
from bench.workloads.densenet121_chestxray import LAYERS, PARAMETERS, dense_layers


class Network(tf.Module):
    def __init__(self, first):
        """first: whether images are N, C, H, W."""
        super().__init__()
        self.order = "NCHW" if first else "NHWC"
        self.p = {spec.name: own_variable(spec) for spec in PARAMETERS}
        self.trained = trained(PARAMETERS)

    def __call__(self, x, training):
        def unit(x, normalisation, convolution, pad=0):
            return self.convolved(tf.nn.relu(self.normalised(x, normalisation, training)), convolution, pad)

        x = tf.nn.relu(self.normalised(self.convolved(x, "features.conv0", 3, 2), "features.norm0", training))
        # ReLU leaves nothing below zero: zeros at the border do not change the maximum. XLA's pooling has no explicit padding.
        x = tf.nn.max_pool2d(tf.pad(x, padding(1, self.order)), 3, 2, "VALID", data_format=self.order)
        for block in range(1, len(LAYERS) + 1):
            for name, _ in dense_layers(block):
                new = unit(unit(x, name + ".norm1", name + ".conv1"), name + ".norm2", name + ".conv2", 1)
                x = tf.concat([x, new], 1 if self.order == "NCHW" else 3)
            if block < len(LAYERS):
                name = "features.transition%d" % block
                x = unit(x, name + ".norm", name + ".conv")
                x = tf.nn.avg_pool2d(x, 2, 2, "VALID", data_format=self.order)
        x = tf.nn.relu(self.normalised(x, "features.norm5", training))
        x = tf.reduce_mean(x, [2, 3] if self.order == "NCHW" else [1, 2])
        return tf.matmul(x, self.p["classifier.weight"]) + self.p["classifier.bias"]

    def convolved(self, x, name, pad, stride=1):
        return tf.nn.conv2d(x, self.p[name + ".weight"], stride, padding(pad, self.order), data_format=self.order)

    def normalised(self, x, name, training):
        own = [self.p["%s.%s" % (name, end)] for end in ("weight", "bias", "running_mean", "running_var")]
        if training:
            return normalised_in_training(x, *own, self.order)
        # Evaluation uses the running statistics.
        return tf.compat.v1.nn.fused_batch_norm(x, *own, EPSILON, data_format=self.order, is_training=False)[0]


class Adam(Optimizer):
    """Algorithm 1 of the paper, by TensorFlow's own kernel."""

    def __init__(self, variables, rate, beta1, beta2, epsilon):
        super().__init__(variables, rate, 2)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        # Only the first replica counts the steps.
        self.step = tf.Variable(0.0, False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def restart(self):
        super().restart()
        self.step.assign(0.0)

    def apply(self, gradients):
        self.step.assign_add(1.0)
        super().apply(gradients, *_adam.corrections(self.step, self.beta1, self.beta2))

    def update(self, variable, gradient, rate, m, v, correct1, root):
        # rate (m / correct1) / (sqrt(v) / root + epsilon), with both sides of the division times root.
        rate, epsilon = rate * root / correct1, self.epsilon * root
        _adam.update(variable, m, v, gradient, rate, epsilon, self.beta1, self.beta2)


class Training(Trained):
    def __init__(self, setup):
        first = channels_first()
        network = Network(first)
        # Adam's constants are explicit: defaults differ among frameworks.
        super().__init__(network, first, Adam([network.p[name] for name in network.trained], 1e-4, 0.9, 0.999, 1e-8))

    def updates(self):
        return int(self.optimizer.step.numpy())

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one sigmoid.
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits))
