"""What the deep networks on pictures do with a block whose normalisations keep statistics: step, read, evaluate."""

import mxnet as mx
from mxnet import autograd


class Trained:
    """A subclass gives network, loss, context, trainer and parameters (canonical name -> Gluon's)."""

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
