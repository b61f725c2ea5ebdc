"""What the deep networks on pictures do with a block whose normalisations keep statistics: step, read, evaluate."""

import mxnet as mx
from mxnet import autograd, gluon, nd

from bench.frameworks.mxnet.framework import contexts, kvstore


class Trained:
    """A subclass gives OPTIMIZER, its name and options, and own_name(name, value), Gluon's name of a parameter.

    Of several contexts each normalises its own part of a batch.
    """

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
        own = self.network._collect_params_with_prefix()  # by attribute, as load_parameters(file) names them
        self.parameters = {name: own[self.own_name(name, value)] for name, value in parameters.items()}
        for name, parameter in self.parameters.items():
            parameter.set_data(parameters[name])
        # the optimiser's state is here, and not in the store, so that set_rate() can reach it
        where = {"kvstore": kvstore(self.contexts), "update_on_kvstore": False}
        self.trainer = gluon.Trainer(self.network.collect_params(), *self.OPTIMIZER, **where)
        if len(self.contexts) > 1:
            # A Trainer's first call hands the first context's parameters to all of them, running statistics too: not after a step
            self.trainer.allreduce_grads()

    def share_statistics(self):
        for parameter in self.parameters.values():
            if parameter.grad_req == "null" and len(self.contexts) > 1:
                parameter.set_data(
                    nd.add_n(*(each.as_in_context(self.context) for each in parameter.list_data())) / len(self.contexts)
                )

    def read(self):
        return {name: parameter.data(self.context).asnumpy() for name, parameter in self.parameters.items()}

    def inputs(self, x, y):
        return x, y  # (N, C, H, W) and contiguous as it comes (A1, B10)

    def _backward(self, x, y):
        x, y = mx.nd.array(x, ctx=self.context), mx.nd.array(y, ctx=self.context)
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
        return self.network(mx.nd.array(x, ctx=self.context)).asnumpy()  # A21: nothing is recorded
