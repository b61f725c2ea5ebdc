"""ResNet-50 trained in Gluon: the features' HybridBlock and a Dense, a Trainer with SGD.

Idiomatic here: hybridize(static_alloc, static_shape) turns the blocks into one graph and plans its memory once. Inside autograd.record()
the normalisations use the batch's statistics and move the running ones a tenth of the way; outside, evaluation uses the running
statistics. Each of several contexts normalises its own part and keeps its own statistics.
"""

from mxnet.gluon import nn

from bench.frameworks.mxnet._loss import SoftmaxCrossEntropy
from bench.frameworks.mxnet_gluon import resnet50_features
from bench.frameworks.mxnet_gluon._pictures import Trained


class Network(resnet50_features.Network):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(1000, in_units=2048)

    def hybrid_forward(self, F, x):
        return self.fc(super().hybrid_forward(F, x))


class Training(Trained):
    # Momentum: v = m v - rate (g + 1e-4 w); w = w + v, without dampening or Nesterov.
    # The rate is inside v, so set_rate() scales v: the result is the specification's v = m v + g + 1e-4 w; w = w - rate v.
    OPTIMIZER = "sgd", {"learning_rate": 0.0125, "momentum": 0.9, "wd": 1e-4}

    def __init__(self, setup):
        super().__init__(setup, Network(), SoftmaxCrossEntropy())

    def own_name(self, name, value):
        return name if name.startswith("fc.") else resnet50_features.own_name(name, value)

    def set_rate(self, rate):
        scale = rate / self.trainer.learning_rate
        self.trainer.set_learning_rate(rate)
        for updater in self.trainer._updaters:
            for velocity in updater.states.values():
                velocity[:] *= scale
