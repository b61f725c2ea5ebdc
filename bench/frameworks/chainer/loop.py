"""What both networks on MNIST do with a Chain: load, step, read. Their batches lie on the device before the first step."""

import chainer
import chainer.functions as F

from bench.frameworks.chainer.adam import Adam
from bench.frameworks.chainer.framework import average, place, seed, set_up, to_device, to_host


class Trained:
    """LAYERS of a subclass: the names of the Chain's links, which are the specification's."""

    def __init__(self, setup, network):
        self.network = network
        seed(setup.seed)
        self.optimizer = None

    def load(self, parameters):
        for name in self.LAYERS:
            layer = self.network[name]
            layer.W.array, layer.b.array = parameters[name + ".w"].copy(), parameters[name + ".b"].copy()
        self.network = place(self.network)
        # C9: every constant set
        self.optimizer = set_up(Adam(alpha=0.001, beta1=0.9, beta2=0.999, eps=1e-8), self.network)

    def read(self):
        return self._read(lambda parameter: parameter.array)

    def inputs(self, x, y):
        return tuple(to_device(x, y))

    def _backward(self, x, y):
        logits = self.network(x)
        loss = F.softmax_cross_entropy(logits, y)  # A7, A19: logits, sparse labels
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
            return to_host(self.network(x).array)

    def _read(self, of):
        found = {}
        for name in self.LAYERS:
            layer = self.network[name]
            found[name + ".w"], found[name + ".b"] = to_host(of(layer.W)), to_host(of(layer.b))
        return found
