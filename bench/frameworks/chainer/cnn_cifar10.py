"""The CIFAR-10 network in Chainer: a Chain, functions on variables, MomentumSGD.

Idiomatic here: the graph is made by running the forward pass; using_config tells training from evaluation (A5); the mini-batch goes to
the device once and nothing in the loop asks for a value (B6); softmax_cross_entropy takes logits and sparse labels (A7, A19).
"""

import chainer
import chainer.functions as F
import chainer.links as L

from bench.frameworks.chainer.framework import average, place, seed, set_up, to_device, to_host

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1, self.conv2 = L.Convolution2D(3, 50, 3, pad=1), L.Convolution2D(50, 50, 3, pad=1)
            self.conv3, self.conv4 = L.Convolution2D(50, 100, 3, pad=1), L.Convolution2D(100, 100, 3, pad=1)
            self.dense1, self.dense2 = L.Linear(6400, 512), L.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(F.max_pooling_2d(self.conv2(x), 2, 2))  # A11: the same function on a quarter of the data
        x = F.dropout(x, 0.25)
        x = F.relu(self.conv3(x))
        x = F.relu(F.max_pooling_2d(self.conv4(x), 2, 2))
        x = F.dropout(x, 0.25)
        x = F.dropout(F.relu(self.dense1(x)), 0.5)  # Linear flattens, in C, H, W order
        return self.dense2(x)


class Training:
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
        # A10: Chainer's momentum is v <- 0.9 v - lr g, w <- w + v: the specification's, with v scaled by the constant rate.
        self.optimizer = set_up(chainer.optimizers.MomentumSGD(lr=0.01, momentum=0.9), self.network)

    def read(self):
        return self._read(lambda parameter: parameter.array)

    def inputs(self, x, y):
        return x, y

    def _backward(self, x, y):
        x, y = to_device(x, y)
        with chainer.using_config("train", self.dropout):
            logits = self.network(x)
            loss = F.softmax_cross_entropy(logits, y)
        self.network.cleargrads()
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        average(self.network)
        return to_host(logits.array), float(loss.array), self._read(lambda parameter: parameter.grad)

    def step(self, x, y):
        _, loss = self._backward(x, y)
        self.optimizer.update()
        return loss.array

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        with chainer.using_config("train", False), chainer.no_backprop_mode():  # A21
            return to_host(self.network(*to_device(x)).array)

    def _read(self, of):
        found = {}
        for name in LAYERS:
            layer = self.network[name]
            found[name + ".w"], found[name + ".b"] = to_host(of(layer.W)), to_host(of(layer.b))
        return found
