"""What both workloads do with a stack of Lasagne's layers: make expressions, compile them, run them."""

import lasagne
import numpy as np
import theano
import theano.tensor as T


class Trained(object):
    """A subclass gives updates(gradients, parameters) -> dict, to_own(parameters) and canonical(values)."""

    def __init__(self, setup, x, last, parameters):
        """x: the input's variable; last: the layer of logits; parameters: shared variables, in the order of to_own."""
        lasagne.random.set_rng(np.random.RandomState(setup.seed))
        self.parameters = parameters
        y = T.ivector("y")
        logits = lasagne.layers.get_output(last, deterministic=not setup.training)  # A5
        # A7: Theano's optimiser turns this pair into one stable operation and its gradient; A19: sparse labels
        loss = T.nnet.categorical_crossentropy(T.nnet.softmax(logits), y).mean()
        gradients = T.grad(loss, self.parameters)
        self.expressions = (x, y, logits, loss, gradients)
        self.evaluated = lasagne.layers.get_output(last, deterministic=True)  # A21: no dropout, no gradients
        self.state, self.train_step = [], None
        self._probe = self._predict = None

    def compile(self):
        """The training step as one C++ program: its own phase of a cell, for it takes up to a minute."""
        if self.train_step is None:
            x, y, _, loss, gradients = self.expressions
            updates = self.updates(gradients, self.parameters)
            self.state = [variable for variable in updates if variable not in self.parameters]
            self.train_step = theano.function([x, y], loss, updates=list(updates.items()))

    def load(self, parameters):
        for variable, value in zip(self.parameters, self.to_own(parameters)):
            variable.set_value(np.ascontiguousarray(value))
        for variable in self.state:
            variable.set_value(np.zeros_like(variable.get_value()))

    def read(self):
        return self.canonical([variable.get_value() for variable in self.parameters])

    def inputs(self, x, y):
        return x, y

    def probe(self, x, y):
        if self._probe is None:
            x_, y_, logits, loss, gradients = self.expressions
            self._probe = theano.function([x_, y_], [logits, loss] + gradients)
        found = self._probe(x, y)
        return found[0], float(found[1]), self.canonical(found[2:])

    def step(self, x, y):
        if self.train_step is None:
            self.compile()
        return self.train_step(x, y)

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        if self._predict is None:
            self._predict = theano.function([self.expressions[0]], self.evaluated)
        return self._predict(x)
