"""The CIFAR-10 network in Chainer: a Chain, functions on variables, MomentumSGD.

Idiomatic here: running the forward pass makes the graph. The configuration "train" switches dropout on. The mini-batch goes to the device
once. softmax_cross_entropy takes logits and class numbers.
"""

import chainer
import chainer.functions as F
import chainer.links as L

from bench import contract
from bench.frameworks.chainer.framework import (
    average,
    place,
    random_state,
    seed,
    set_random_state,
    set_up,
    to_device,
    to_host,
)

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            # Padding is explicit: defaults differ among frameworks.
            self.conv1, self.conv2 = L.Convolution2D(3, 50, 3, pad=1), L.Convolution2D(50, 50, 3, pad=1)
            self.conv3, self.conv4 = L.Convolution2D(50, 100, 3, pad=1), L.Convolution2D(100, 100, 3, pad=1)
            self.dense1, self.dense2 = L.Linear(6400, 512), L.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        # ReLU after the pooling: the same values, a quarter of the work.
        x = F.relu(F.max_pooling_2d(self.conv2(x), 2, 2))
        x = F.dropout(x, 0.25)
        x = F.relu(self.conv3(x))
        x = F.relu(F.max_pooling_2d(self.conv4(x), 2, 2))
        x = F.dropout(x, 0.25)
        # Linear flattens its input, in C, H, W order.
        x = F.dropout(F.relu(self.dense1(x)), 0.5)
        return self.dense2(x)


class Training(contract.Training):
    def __init__(self, setup):
        self.dropout = setup.training
        self.network = Network()
        seed(setup.seed)
        self.optimizer = None

    def load(self, parameters):
        for name in LAYERS:
            layer = self.network[name]
            layer.W.array, layer.b.array = parameters[name + ".w"].copy(), parameters[name + ".b"].copy()
        self.network = place(self.network)
        # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov. Chainer stores -rate v in place of v.
        self.optimizer = set_up(chainer.optimizers.MomentumSGD(lr=0.01, momentum=0.9), self.network)

    def read(self):
        return self._read(lambda parameter: parameter.array)

    def _backward(self, x, y):
        x, y = to_device(x, y)
        # Dropout only in training.
        with chainer.using_config("train", self.dropout):
            logits = self.network(x)
            # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
            loss = F.softmax_cross_entropy(logits, y)
        self.network.cleargrads()
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        average(self.network)
        return to_host(logits.array), float(loss.array), self._read(lambda parameter: parameter.grad)

    def masks(self):
        return random_state()

    def redraw(self, masks):
        set_random_state(masks)

    def step(self, x, y):
        _, loss = self._backward(x, y)
        self.optimizer.update()
        # No value goes back to the host inside the loop.
        return loss.array

    def updates(self):
        return self.optimizer.t

    def predict(self, x):
        # No gradients in evaluation: they cost memory and time.
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            return to_host(self.network(*to_device(x)).array)

    def _read(self, of):
        arrays = {}
        for name in LAYERS:
            layer = self.network[name]
            arrays[name + ".w"], arrays[name + ".b"] = to_host(of(layer.W)), to_host(of(layer.b))
        return arrays
