"""What the training loop does with a hybridised block: load, step, read. The Rosetta stone's two networks have it whole in their files."""

import mxnet as mx
from mxnet import autograd, gluon

from bench.frameworks.mxnet.framework import contexts, kvstore


class Trained:
    """A subclass gives OPTIMIZER, its name and options, and parameters, canonical name -> Gluon's, before load()."""

    ON_STORE = None  # whether the store updates the parameters; None: as Gluon has it

    def __init__(self, setup, network, loss):
        mx.random.seed(setup.seed)
        self.contexts = contexts(setup)
        self.context = self.contexts[0]
        self.network, self.loss = network, loss
        self.network.initialize(mx.init.Zero(), ctx=self.contexts)  # load() brings the real values
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.loss.hybridize(static_alloc=True, static_shape=True)
        self.parameters, self.trainer = {}, None

    def load(self, parameters):
        for name, parameter in self.parameters.items():
            parameter.set_data(parameters[name])
        where = {"kvstore": kvstore(self.contexts), "update_on_kvstore": self.ON_STORE}
        self.trainer = gluon.Trainer(self.network.collect_params(), *self.OPTIMIZER, **where)

    def read(self):
        return {name: parameter.data(self.context).asnumpy() for name, parameter in self.parameters.items()}

    def placed(self, array):
        """An array of a batch where it is computed on."""
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
        # backward() of a vector of losses gives the gradient of their sum
        gradients = {name: parameter.grad(self.context).asnumpy() / len(x) for name, parameter in trained}
        return logits.asnumpy(), float(loss.mean().asscalar()), gradients

    def step(self, x, y):
        _, loss = self._backward(x, y)
        self.trainer.step(len(x))  # divides by the batch
        return loss

    def value(self, loss):
        return float(loss.mean().asscalar())

    def predict(self, x):
        return self.network(self.placed(x)).asnumpy()  # A21: nothing is recorded
