"""What both networks on MNIST do with a hybridised block: load, step, read. Their batches lie on the device before the first step."""

import mxnet as mx
from mxnet import autograd, gluon

import bench.frameworks.mxnet.adam  # noqa: F401  (registers "exactadam")
from bench.frameworks.mxnet.framework import contexts, kvstore
from bench.frameworks.mxnet.loss import SoftmaxCrossEntropy


class Trained:
    """layers: canonical name -> layer of the network."""

    def __init__(self, setup, network, layers):
        mx.random.seed(setup.seed)
        self.contexts = contexts(setup)
        self.context = self.contexts[0]
        self.network, self.layers = network, layers
        self.network.initialize(mx.init.Zero(), ctx=self.contexts)  # load() brings the real values
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.loss = SoftmaxCrossEntropy()
        self.loss.hybridize(static_alloc=True, static_shape=True)
        self.trainer = None

    def load(self, parameters):
        for name, layer in self.layers.items():
            layer.weight.set_data(parameters[name + ".w"])
            layer.bias.set_data(parameters[name + ".b"])
        # C9: every constant set
        adam = {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
        self.trainer = gluon.Trainer(self.network.collect_params(), "exactadam", adam, kvstore=kvstore(self.contexts))

    def read(self):
        return self._read(lambda parameter: parameter.data(self.context))

    def inputs(self, x, y):
        return mx.nd.array(x, ctx=self.context), mx.nd.array(y, ctx=self.context)

    def _backward(self, x, y):
        x, y = x.as_in_context(self.context), y.as_in_context(self.context)  # no copy where they are there
        with autograd.record():
            logits = self.network(x)
            loss = self.loss(logits, y)
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        # backward() of a vector of losses gives the gradient of their sum
        gradients = self._read(lambda parameter: parameter.grad(self.context) / len(x))
        return logits.asnumpy(), float(loss.mean().asscalar()), gradients

    def step(self, x, y):
        _, loss = self._backward(x, y)
        self.trainer.step(len(x))  # divides by the batch
        return loss

    def value(self, loss):
        return float(loss.mean().asscalar())

    def predict(self, x):
        return self.network(x.as_in_context(self.context)).asnumpy()  # A21: nothing is recorded

    def _read(self, of):
        found = {}
        for name, layer in self.layers.items():
            found[name + ".w"], found[name + ".b"] = of(layer.weight).asnumpy(), of(layer.bias).asnumpy()
        return found
