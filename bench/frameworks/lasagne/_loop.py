"""The training loop of a stack of Lasagne's layers: make expressions, compile them, run them. cnn_cifar10.py has all of it in one file."""

import lasagne
import numpy as np
import theano
import theano.tensor as T

from bench import contract


class Trained(contract.Training):
    """A subclass gives new_values(gradients, parameters) -> dict of the step's updates, to_own(parameters) and canonical(values)."""

    def __init__(self, setup, x, last, parameters):
        """x: the input's variable. last: the layer of logits. parameters: shared variables, in the order of to_own."""
        lasagne.random.set_rng(np.random.RandomState(setup.seed))
        self.parameters = parameters
        y = T.ivector("y")
        # Dropout only in training.
        logits = lasagne.layers.get_output(last, deterministic=not setup.training)
        # There is exactly one softmax: Theano's optimiser turns this pair into one stable operation with its gradient.
        # Labels as class numbers: no one-hot arrays.
        loss = T.nnet.categorical_crossentropy(T.nnet.softmax(logits), y).mean()
        gradients = T.grad(loss, self.parameters)
        self.expressions = (x, y, logits, loss, gradients)
        # No gradients in evaluation: they cost memory and time. No dropout either.
        self.evaluated = lasagne.layers.get_output(last, deterministic=True)
        self.state, self.train_step = [], None
        self._probe = self._predict = None

    def compile(self):
        """The training step as one C++ program, compiled, as people run it for speed. It takes up to a minute: a phase of its own."""
        if self.train_step is None:
            x, y, _, loss, gradients = self.expressions
            updates = self.new_values(gradients, self.parameters)
            self.state = [variable for variable in updates if variable not in self.parameters]
            self.train_step = theano.function([x, y], loss, updates=list(updates.items()))

    def load(self, parameters):
        for variable, value in zip(self.parameters, self.to_own(parameters)):
            variable.set_value(np.ascontiguousarray(value))
        for variable in self.state:
            variable.set_value(np.zeros_like(variable.get_value()))

    def read(self):
        return self.canonical([variable.get_value() for variable in self.parameters])

    def probe(self, x, y):
        if self._probe is None:
            x_, y_, logits, loss, gradients = self.expressions
            self._probe = theano.function([x_, y_], [logits, loss] + gradients)
        results = self._probe(x, y)
        return results[0], float(results[1]), self.canonical(results[2:])

    def step(self, x, y):
        if self.train_step is None:
            self.compile()
        return self.train_step(x, y)

    def predict(self, x):
        if self._predict is None:
            self._predict = theano.function([self.expressions[0]], self.evaluated)
        return self._predict(x)
