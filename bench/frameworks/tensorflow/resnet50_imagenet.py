"""ResNet-50 trained in TensorFlow: the features' network on variables that are trained, the training step as one tf.function.

Idiomatic here: the step is traced once for a size of batch (B8); in training the fused normalisation returns the batch's mean and unbiased
variance, which move the running statistics by assignments in the same graph. Those are ON_READ variables: each of several replicas moves
its own, and what is read outside is their mean. Gradients are added up and variables updated as TensorFlow's guide to custom
training with tf.distribute.Strategy has it; the loss takes logits and sparse labels (A7, A19).
"""

import numpy as np
import tensorflow as tf

from bench.frameworks.tensorflow import resnet50_features
from bench.frameworks.tensorflow.framework import channels_first
from bench.frameworks.tensorflow.pictures import Trained, to_own
from bench.workloads.resnet50_imagenet import EPSILON, PARAMETERS, STATISTICS, STEP

RUNNING = {
    "trainable": False,
    "synchronization": tf.VariableSynchronization.ON_READ,
    "aggregation": tf.VariableAggregation.MEAN,
}


class Network(resnet50_features.Network):
    SPECIFICATIONS = PARAMETERS

    def __init__(self, first):
        super().__init__(first)
        # in the specification's order; tf.Module's own trainable_variables are sorted by name
        self.trained = [spec.name for spec in PARAMETERS if spec.kind not in STATISTICS]
        self.training = False  # which of the two is being traced

    def variable(self, spec):
        options = RUNNING if spec.kind in STATISTICS else {}
        return tf.Variable(to_own(np.zeros(spec.shape, np.float32)), **options)

    def __call__(self, x, training):
        self.training = training
        return tf.matmul(super().__call__(x), self.p["fc.weight"]) + self.p["fc.bias"]

    def normalise(self, x, scale, offset, mean, variance):
        if not self.training:  # D6
            return super().normalise(x, scale, offset, mean, variance)
        y, *batch = tf.compat.v1.nn.fused_batch_norm(
            x, scale, offset, epsilon=EPSILON, data_format=self.order, is_training=True
        )
        for running, now in zip((mean, variance), batch):
            running.assign_sub(STEP * (running - now))
        return y


class Momentum(tf.Module):
    """v <- 0.9 v + (g + 1e-4 w), w <- w - rate v, on a list of variables: Keras' SGD has no such decay, and the rate inside v (A10)."""

    def __init__(self, variables, rate, momentum, decay):
        super().__init__()
        self.rate = tf.Variable(rate, False)
        self.momentum, self.decay, self.variables_ = momentum, decay, variables
        self.v = [tf.Variable(tf.zeros_like(variable), False) for variable in variables]

    def restart(self):
        for v in self.v:
            v.assign(tf.zeros_like(v))

    def apply(self, gradients):
        """Called by every replica with the gradients of its share of the loss."""
        tf.distribute.get_replica_context().merge_call(self._apply, args=(gradients,))

    def _apply(self, strategy, gradients):
        pairs = list(zip(gradients, self.variables_))
        added = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
        for gradient, variable, v in zip(added, self.variables_, self.v):
            strategy.extended.update(variable, self._update, args=(gradient, v, self.rate))

    def _update(self, variable, gradient, v, rate):
        v.assign(self.momentum * v + gradient + self.decay * variable)
        variable.assign_sub(rate * v)


class Training(Trained):
    def __init__(self, setup):
        first = channels_first()
        network = Network(first)
        super().__init__(network, first, Momentum([network.p[name] for name in network.trained], 0.0125, 0.9, 1e-4))

    def set_rate(self, rate):
        self.optimizer.rate.assign(rate)

    def loss(self, logits, y):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
