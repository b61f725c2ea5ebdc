"""What the training loop does with a Chain: load, step, read, evaluate. The Rosetta stone's two networks have it whole in their files."""

import chainer

from bench.frameworks.chainer._weights import fill, tensors
from bench.frameworks.chainer.framework import average, place, set_up, to_device, to_host


class Trained:
    """A subclass gives fresh(), its optimiser at the start, own_name(name, value), the Chain's, and loss(logits, y)."""

    def __init__(self, network):
        self.network, self.optimizer, self.own = network, None, {}

    def load(self, parameters):
        self.own = {name: self.own_name(name, value) for name, value in parameters.items()}
        self.network = place(fill(self.network, {self.own[name]: value for name, value in parameters.items()}))
        self.optimizer = set_up(self.fresh(), self.network)

    def read(self):
        found = tensors(self.network)
        return {name: to_host(found[own]).copy() for name, own in self.own.items()}

    def _backward(self, x, y):
        x, y = to_device(x, y)  # no copy where they are there
        logits = self.network(x)
        loss = self.loss(logits, y)
        self.network.cleargrads()
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        average(self.network)
        found = {name.lstrip("/"): parameter.grad for name, parameter in self.network.namedparams()}
        gradients = {name: to_host(found[own]) for name, own in self.own.items() if own in found}
        return to_host(logits.array), float(loss.array), gradients

    def step(self, x, y):
        _, loss = self._backward(x, y)
        self.optimizer.update()
        return loss.array

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        with chainer.using_config("train", False), chainer.no_backprop_mode():  # A21
            return to_host(self.network(*to_device(x)).array)
