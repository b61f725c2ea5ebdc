"""What the workloads do with a network of tensors: load, step, read."""

import numpy as np
from tinygrad import Context, Tensor, nn

from bench.frameworks.tinygrad.framework import jit


class Trained:
    """A subclass has parameters (canonical name -> Tensor), logits(x, training) and new_optimizer()."""

    def __init__(self, setup):
        Tensor.manual_seed(setup.seed)
        self.dropout = setup.training
        self.setup = setup
        self.optimizer = self.train_step = self.forward = None

    def load(self, parameters):
        for name, tensor in self.parameters.items():
            tensor.replace(Tensor(parameters[name]).is_param_(True)).realize()
        self.optimizer = self.new_optimizer(list(self.parameters.values()))
        # captured anew, for a captured step holds its buffers
        self.train_step = jit(self.setup, self._train_step)
        self.forward = jit(self.setup, lambda x: self.logits(x, False).realize())

    def read(self):
        return {name: tensor.numpy() for name, tensor in self.parameters.items()}

    def inputs(self, x, y):
        return x, y

    def placed(self, *arrays):
        """As buffers, which the captured step wants its inputs as."""
        return [Tensor(array).realize() for array in arrays]

    def _loss(self, x, y):
        logits = self.logits(x, self.dropout)
        return logits, logits.sparse_categorical_crossentropy(y)  # A7, A19

    @Context(TRAINING=1)
    def _train_step(self, x, y):
        self.optimizer.zero_grad()
        _, loss = self._loss(x, y)
        loss.backward()
        return loss.realize(*self.optimizer.schedule_step())  # one schedule for the loss and the update

    def probe(self, x, y):
        with Context(TRAINING=1):
            self.optimizer.zero_grad()
            logits, loss = self._loss(*self.placed(x, y))
            loss.backward()
            gradients = {name: tensor.grad.numpy() for name, tensor in self.parameters.items()}
            return logits.numpy(), float(loss.item()), gradients

    def step(self, x, y):
        return self.train_step(*self.placed(x, y))

    def value(self, loss):
        return float(np.asarray(loss.numpy()))

    def predict(self, x):
        return self.forward(*self.placed(x)).numpy()


class Resident(Trained):
    """Batches that lie on the device before the first step, and Adam: the networks on MNIST."""

    def new_optimizer(self, parameters):
        # C9: every constant set
        return nn.optim.Adam(parameters, lr=0.001, b1=0.9, b2=0.999, eps=1e-8)

    def inputs(self, x, y):
        return Tensor(x).realize(), Tensor(y).realize()

    def placed(self, *tensors):
        return tensors
