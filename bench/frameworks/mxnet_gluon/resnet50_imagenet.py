"""ResNet-50 trained in Gluon: the features' HybridBlock and a Dense, a Trainer with SGD.

Idiomatic here: hybridize(static_alloc, static_shape) turns the blocks into one graph with its memory planned once (B8); inside
autograd.record() the normalisations take the batch's statistics and move the running ones a tenth of the way, outside they use the
running ones (D6), and nothing is recorded (A21). Of several contexts each normalises its own part and keeps its own statistics.
"""

import mxnet as mx
from mxnet import gluon, nd
from mxnet.gluon import nn

from bench.frameworks.mxnet.framework import contexts, kvstore
from bench.frameworks.mxnet.loss import SoftmaxCrossEntropy
from bench.frameworks.mxnet_gluon import resnet50_features
from bench.frameworks.mxnet_gluon.pictures import Trained


class Network(resnet50_features.Network):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(1000, in_units=2048)

    def hybrid_forward(self, F, x):
        return self.fc(super().hybrid_forward(F, x))


def own_name(name, value):
    return name if name.startswith("fc.") else resnet50_features.own_name(name, value)


class Training(Trained):
    def __init__(self, setup):
        mx.random.seed(setup.seed)
        self.contexts = contexts(setup)
        self.context = self.contexts[0]
        self.network = Network()
        self.network.initialize(mx.init.Zero(), ctx=self.contexts)  # load() brings the real values
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.loss = SoftmaxCrossEntropy()
        self.loss.hybridize(static_alloc=True, static_shape=True)
        self.parameters, self.trainer = {}, None

    def load(self, parameters):
        own = self.network._collect_params_with_prefix()  # by attribute, as load_parameters(file) names them
        self.parameters = {name: own[own_name(name, value)] for name, value in parameters.items()}
        for name, parameter in self.parameters.items():
            parameter.set_data(parameters[name])
        # A10: v <- 0.9 v - rate (g + 1e-4 w), w <- w + v: the specification's, with v scaled by the rate, which set_rate() heeds
        sgd = {"learning_rate": 0.0125, "momentum": 0.9, "wd": 1e-4}
        # the velocities are here, and not in the store, so that set_rate() can reach them
        where = {"kvstore": kvstore(self.contexts), "update_on_kvstore": False}
        self.trainer = gluon.Trainer(self.network.collect_params(), "sgd", sgd, **where)
        if len(self.contexts) > 1:
            # A Trainer's first call hands the first context's parameters to all of them, running statistics too: not after a step
            self.trainer.allreduce_grads()

    def set_rate(self, rate):
        scale = rate / self.trainer.learning_rate
        self.trainer.set_learning_rate(rate)
        for updater in self.trainer._updaters:
            for velocity in updater.states.values():
                velocity[:] *= scale

    def share_statistics(self):
        for parameter in self.parameters.values():
            if parameter.grad_req == "null" and len(self.contexts) > 1:
                parameter.set_data(
                    nd.add_n(*(each.as_in_context(self.context) for each in parameter.list_data())) / len(self.contexts)
                )
