"""ResNet-50 trained in TensorFlow: the features' network on variables that are trained, the training step as one tf.function.

Idiomatic here: the step is traced once for each size of batch. In training the fused normalisation returns the batch's mean and unbiased
variance; assignments in the same graph update the running statistics. Those are ON_READ variables: each replica updates its own, and
outside the replicas their mean is read. Gradients are added up and variables updated as TensorFlow's guide to custom training with
tf.distribute.Strategy shows.
"""

import tensorflow as tf

from bench.frameworks.tensorflow import resnet50_features
from bench.frameworks.tensorflow._pictures import Optimizer, Trained, normalised_in_training, own_variable, trained
from bench.frameworks.tensorflow.framework import channels_first
from bench.workloads.resnet50_imagenet import PARAMETERS


class Network(resnet50_features.Network):
    SPECIFICATIONS = PARAMETERS

    def __init__(self, first):
        super().__init__(first)
        self.trained = trained(PARAMETERS)
        # Whether training or evaluation is being traced.
        self.training = False

    def variable(self, spec):
        return own_variable(spec)

    def __call__(self, x, training):
        self.training = training
        return tf.matmul(super().__call__(x), self.p["fc.weight"]) + self.p["fc.bias"]

    def normalise(self, x, scale, offset, mean, variance):
        if not self.training:
            return super().normalise(x, scale, offset, mean, variance)
        return normalised_in_training(x, scale, offset, mean, variance, self.order)


class Momentum(Optimizer):
    """Momentum: v = m v + g + 1e-4 w; w = w - rate v, without dampening or Nesterov.

    Keras' SGD has no such decay, and its v contains the rate.
    """

    def __init__(self, variables, rate, momentum, decay):
        super().__init__(variables, rate, 1)
        self.momentum, self.decay = momentum, decay

    def update(self, variable, gradient, rate, v):
        v.assign(self.momentum * v + gradient + self.decay * variable)
        variable.assign_sub(rate * v)


class Training(Trained):
    def __init__(self, setup):
        first = channels_first()
        network = Network(first)
        super().__init__(network, first, Momentum([network.p[name] for name in network.trained], 0.0125, 0.9, 1e-4))

    def loss(self, logits, y):
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
