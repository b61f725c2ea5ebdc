"""The training loop of a hybridised block. cnn_cifar10.py and gru_imdb.py have all of it in their own file."""

import mxnet as mx
from mxnet import autograd, gluon

from bench import contract
from bench.frameworks.mxnet.framework import contexts, kvstore


class Trained(contract.Training):
    """A subclass has OPTIMIZER, a name and its options; before load() it sets parameters, canonical name -> Gluon's parameter."""

    # Whether the store updates the parameters. None is Gluon's default.
    ON_STORE = None

    def __init__(self, setup, network, loss):
        mx.random.seed(setup.seed)
        self.contexts = contexts(setup)
        self.context = self.contexts[0]
        self.network, self.loss = network, loss
        # load() sets the values.
        self.network.initialize(mx.init.Zero(), ctx=self.contexts)
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.loss.hybridize(static_alloc=True, static_shape=True)
        self.parameters, self.trainer = {}, None

    def load(self, parameters):
        for name, parameter in self.parameters.items():
            # As an array of MXNet's: oneDNN may have given the parameter a layout of its own, which NumPy's numbers cannot go into.
            parameter.set_data(mx.nd.array(parameters[name], ctx=self.context))
        store = {"kvstore": kvstore(self.contexts), "update_on_kvstore": self.ON_STORE}
        self.trainer = gluon.Trainer(self.network.collect_params(), *self.OPTIMIZER, **store)

    def read(self):
        return {name: parameter.data(self.context).asnumpy() for name, parameter in self.parameters.items()}

    def placed(self, array):
        """An array of a batch on the device."""
        return mx.nd.array(array, ctx=self.context)

    def _backward(self, x, y):
        x, y = self.placed(x), self.placed(y)
        with autograd.record():
            logits = self.network(x)
            loss = self.loss(logits, y)
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        trained = ((name, p) for name, p in self.parameters.items() if p.grad_req != "null")
        # backward() of a vector of losses gives the gradient of their sum.
        gradients = {name: parameter.grad(self.context).asnumpy() / len(x) for name, parameter in trained}
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
        return self.network(self.placed(x)).asnumpy()
