"""ResNet-50 trained in Gluon: the features' HybridBlock and a Dense, a Trainer with SGD.

Idiomatic here: hybridize(static_alloc, static_shape) turns the blocks into one graph with its memory planned once (B8); inside
autograd.record() the normalisations take the batch's statistics and move the running ones a tenth of the way, outside they use the
running ones (D6), and nothing is recorded (A21). Of several contexts each normalises its own part and keeps its own statistics.
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
    # A10: v <- 0.9 v - rate (g + 1e-4 w), w <- w + v: the specification's, with v scaled by the rate, which set_rate() heeds
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
