"""The training loop of a Chain: load, read, inputs, probe, step, predict. cnn_cifar10.py has all of it in one file."""

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

    def inputs(self, x, y):
        # Pictures are channels first, the layout that cuDNN computes in.
        return x, y

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
        return to_host(logits.array), float(loss.array), self.gradients()

    def gradients(self):
        gradients = {name.lstrip("/"): parameter.grad for name, parameter in self.network.namedparams()}
        return {name: to_host(gradients[own]) for name, own in self.own.items() if own in gradients}

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
