"""The CIFAR-10 network in Gluon: a HybridSequential, a Trainer, autograd.record().

Idiomatic here: hybridize(static_alloc, static_shape) turns the blocks into one graph and plans its memory once. The mini-batch goes to
the device once. No value goes back to the host inside the loop, so MXNet's engine runs ahead of Python.
"""

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

from bench import contract
from bench.frameworks.mxnet._loss import SoftmaxCrossEntropy
from bench.frameworks.mxnet.framework import contexts, kvstore

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")


class Training(contract.Training):
    def __init__(self, setup):
        mx.random.seed(setup.seed)
        self.contexts = contexts(setup)
        self.context = self.contexts[0]
        self.network = nn.HybridSequential()
        # Stride and padding are explicit: defaults differ among frameworks.
        conv1, conv2 = nn.Conv2D(50, 3, padding=1, in_channels=3), nn.Conv2D(50, 3, padding=1, in_channels=50)
        conv3, conv4 = nn.Conv2D(100, 3, padding=1, in_channels=50), nn.Conv2D(100, 3, padding=1, in_channels=100)
        dense1, dense2 = nn.Dense(512, in_units=6400), nn.Dense(10, in_units=512)
        relu, pool = (lambda: nn.Activation("relu")), (lambda: nn.MaxPool2D(2, strides=2))

        # Dropout only in training. The parity check leaves the layer out. With train_mode=False it would stay, but oneDNN's pooling then
        # keeps no places of its maxima, and its gradient goes to the wrong places (measured with 1.9.1).
        def drop(rate):
            return [nn.Dropout(rate)] if setup.training else []

        # ReLU after the pooling: the same values, a quarter of the work. Dense flattens its input, in C, H, W order.
        self.network.add(
            *(conv1, relu(), conv2, pool(), relu(), *drop(0.25)),
            *(conv3, relu(), conv4, pool(), relu(), *drop(0.25)),
            *(dense1, relu(), *drop(0.5), dense2),
        )
        self.layers = dict(zip(LAYERS, (conv1, conv2, conv3, conv4, dense1, dense2)))
        # load() sets the values.
        self.network.initialize(mx.init.Zero(), ctx=self.contexts)
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.loss = SoftmaxCrossEntropy()
        self.loss.hybridize(static_alloc=True, static_shape=True)
        self.trainer = None

    def load(self, parameters):
        for name, layer in self.layers.items():
            layer.weight.set_data(mx.nd.array(parameters[name + ".w"], ctx=self.context))
            layer.bias.set_data(mx.nd.array(parameters[name + ".b"], ctx=self.context))
        # Momentum: v = m v - rate g; w = w + v, without dampening or Nesterov.
        # At a constant rate this is the specification's v = m v + g; w = w - rate v.
        sgd = {"learning_rate": 0.01, "momentum": 0.9, "wd": 0.0}
        self.trainer = gluon.Trainer(self.network.collect_params(), "sgd", sgd, kvstore=kvstore(self.contexts))

    def read(self):
        return self._read(lambda parameter: parameter.data(self.context))

    def _backward(self, x, y):
        x, y = mx.nd.array(x, ctx=self.context), mx.nd.array(y, ctx=self.context)
        with autograd.record():
            logits = self.network(x)
            loss = self.loss(logits, y)
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        # backward() of a vector of losses gives the gradient of their sum.
        gradients = self._read(lambda parameter: parameter.grad(self.context) / len(x))
        return logits.asnumpy(), float(loss.mean().asscalar()), gradients

    def step(self, x, y):
        _, loss = self._backward(x, y)
        # step() divides the gradient by the batch.
        self.trainer.step(len(x))
        return loss

    def updates(self):
        return self.trainer.optimizer.num_update

    def value(self, loss):
        return float(loss.mean().asscalar())

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        return self.network(mx.nd.array(x, ctx=self.context)).asnumpy()

    def _read(self, of):
        arrays = {}
        for name, layer in self.layers.items():
            arrays[name + ".w"], arrays[name + ".b"] = of(layer.weight).asnumpy(), of(layer.bias).asnumpy()
        return arrays
