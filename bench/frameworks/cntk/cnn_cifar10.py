"""The CIFAR-10 network in CNTK: functions composed into a graph, a learner, a Trainer.

Idiomatic here: the graph is compiled once, as people run it for speed, and a Trainer runs it. learning_parameter_schedule is a rate for
the mean gradient of the mini-batch.
"""

from collections import OrderedDict

import cntk as C

from bench.frameworks.cntk._loop import Trained

CONVOLUTIONS = (("conv1", 3, 50), ("conv2", 50, 50), ("conv3", 50, 100), ("conv4", 100, 100))
DENSE = (("dense1", 6400, 512), ("dense2", 512, 10))


class Training(Trained):
    def __init__(self, setup):
        self.parameters = OrderedDict()
        for name, inputs, outputs in CONVOLUTIONS:
            self.parameters[name + ".w"] = C.parameter((outputs, inputs, 3, 3))
            self.parameters[name + ".b"] = C.parameter((outputs, 1, 1))
        for name, inputs, outputs in DENSE:
            self.parameters[name + ".w"] = C.parameter((inputs, outputs))
            self.parameters[name + ".b"] = C.parameter(outputs)
        x = C.input_variable((3, 32, 32))
        super(Training, self).__init__(x, self.network(x, setup.training), self.network(x, False), 10)

    def network(self, x, training):
        p = self.parameters

        # Padding is explicit: defaults differ among frameworks. Height and width are padded by 1, channels are not.
        def conv(x, name):
            return C.convolution(p[name + ".w"], x, auto_padding=[False, True, True]) + p[name + ".b"]

        def pool(x):
            return C.pooling(x, C.MAX_POOLING, (2, 2), (2, 2))

        def dense(x, name):
            return C.times(x, p[name + ".w"]) + p[name + ".b"]

        # Dropout only in training.
        def drop(x, rate):
            return C.dropout(x, rate) if training else x

        x = C.relu(conv(x, "conv1"))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = drop(C.relu(pool(conv(x, "conv2"))), 0.25)
        x = C.relu(conv(x, "conv3"))
        x = drop(C.relu(pool(conv(x, "conv4"))), 0.25)
        # Flattened in C, H, W order.
        x = drop(C.relu(dense(C.reshape(x, (6400,)), "dense1")), 0.5)
        return dense(x, "dense2")

    def learner(self, parameters):
        # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov.
        # With unit gain, CNTK's default, g would be multiplied by 0.1.
        rate = C.learning_parameter_schedule(0.01)
        return C.momentum_sgd(parameters, rate, C.momentum_schedule(0.9), unit_gain=False)

    def to_own(self, name, value):
        if name.startswith("dense"):
            return value.T
        return value if value.ndim == 4 else value.reshape(-1, 1, 1)

    def canonical(self, name, value):
        if name.startswith("dense"):
            return value.T
        return value if value.ndim == 4 else value.ravel()
