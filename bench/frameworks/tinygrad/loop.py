"""What both workloads do with a network of tensors: load, step, read."""

import numpy as np
from tinygrad import Context, Tensor

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
            logits, loss = self._loss(Tensor(x), Tensor(y))
            loss.backward()
            gradients = {name: tensor.grad.numpy() for name, tensor in self.parameters.items()}
            return logits.numpy(), float(loss.item()), gradients

    def step(self, x, y):
        # the captured step wants its inputs as buffers
        return self.train_step(Tensor(x).realize(), Tensor(y).realize())

    def value(self, loss):
        return float(np.asarray(loss.numpy()))

    def predict(self, x):
        return self.forward(Tensor(x).realize()).numpy()
