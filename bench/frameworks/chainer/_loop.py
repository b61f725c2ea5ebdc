"""The training loop of a Chain: load, read, step, probe, predict. cnn_cifar10.py and gru_imdb.py have all of it in their own file."""

import chainer

from bench import contract
from bench.frameworks.chainer._weights import fill, tensors
from bench.frameworks.chainer.framework import average, place, set_up, to_device, to_host


class Trained(contract.Training):
    """A subclass gives fresh(), a new optimiser; own_name(name, value), the Chain's name of a parameter; and loss(logits, y)."""

    def __init__(self, network):
        self.network, self.optimizer, self.own = network, None, {}

    def load(self, parameters):
        self.own = {name: self.own_name(name, value) for name, value in parameters.items()}
        self.network = place(fill(self.network, {self.own[name]: value for name, value in parameters.items()}))
        self.optimizer = set_up(self.fresh(), self.network)

    def read(self):
        arrays = tensors(self.network)
        return {name: to_host(arrays[own]).copy() for name, own in self.own.items()}

    def _backward(self, x, y):
        # Arrays that lie on the device already are not copied.
        x, y = to_device(x, y)
        logits = self.network(x)
        loss = self.loss(logits, y)
        self.network.cleargrads()
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        average(self.network)
        own_gradients = {name.lstrip("/"): parameter.grad for name, parameter in self.network.namedparams()}
        gradients = {name: to_host(own_gradients[own]) for name, own in self.own.items() if own in own_gradients}
        return to_host(logits.array), float(loss.array), gradients

    def step(self, x, y):
        _, loss = self._backward(x, y)
        self.optimizer.update()
        return loss.array

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        # No gradients in evaluation: they cost memory and time.
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            return to_host(self.network(*to_device(x)).array)
