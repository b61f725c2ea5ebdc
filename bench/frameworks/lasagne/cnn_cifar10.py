"""The CIFAR-10 network in Lasagne: a stack of layers, from which Theano makes one compiled function.

Idiomatic here: layers only describe the network. get_output makes an expression of them, and theano.function compiles step and update
together. Theano's convolution flips its kernels (it convolves; others correlate): filter_flip=False stops that.
"""

import lasagne
import numpy as np
import theano
import theano.tensor as T
from lasagne import layers
from lasagne.nonlinearities import identity, rectify

from bench import contract

NAMES = [layer + end for layer in ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2") for end in (".w", ".b")]


def turned(name, value):
    """Dense weights are (in, out) in Lasagne, (out, in) in the specification."""
    return value.T if name in ("dense1.w", "dense2.w") else value


def correlate(x, w, subsample, image_shape, filter_shape, border_mode):
    """The operation that Conv2DLayer calls: padded by 1 in the operation itself, kernels not flipped."""
    return T.nnet.conv2d(x, w, image_shape, filter_shape, border_mode=(1, 1), subsample=subsample, filter_flip=False)


class Padded(layers.Conv2DLayer):
    """Conv2DLayer pads a copy of its input. Theano's convolution can pad by itself."""

    def __init__(self, incoming, filters):
        super(Padded, self).__init__(incoming, filters, 3, nonlinearity=identity, convolution=correlate)

    def get_output_shape_for(self, input_shape):
        return (input_shape[0], self.num_filters) + tuple(input_shape[2:])


def relu(layer):
    return layers.NonlinearityLayer(layer, rectify)


def network(x):
    net = relu(Padded(layers.InputLayer((64, 3, 32, 32), x), 50))
    # ReLU after the pooling: the same values, a quarter of the work.
    net = relu(layers.MaxPool2DLayer(Padded(net, 50), 2))
    net = layers.DropoutLayer(net, 0.25)
    net = relu(Padded(net, 100))
    net = relu(layers.MaxPool2DLayer(Padded(net, 100), 2))
    net = layers.DropoutLayer(net, 0.25)
    # DenseLayer flattens its input, in C, H, W order.
    net = layers.DropoutLayer(layers.DenseLayer(net, 512, nonlinearity=rectify), 0.5)
    return layers.DenseLayer(net, 10, nonlinearity=identity)


class Training(contract.Training):
    def __init__(self, setup):
        lasagne.random.set_rng(np.random.RandomState(setup.seed))
        x = T.tensor4("x")
        last = network(x)
        self.parameters = layers.get_all_params(last, trainable=True)
        y = T.ivector("y")
        # Dropout only in training.
        logits = layers.get_output(last, deterministic=not setup.training)
        # There is exactly one softmax: Theano's optimiser turns this pair into one stable operation with its gradient.
        # Labels as class numbers: no one-hot arrays.
        loss = T.nnet.categorical_crossentropy(T.nnet.softmax(logits), y).mean()
        gradients = T.grad(loss, self.parameters)
        self.expressions = (x, y, logits, loss, gradients)
        # No gradients in evaluation: they cost memory and time. No dropout either.
        self.evaluated = layers.get_output(last, deterministic=True)
        self.state, self.train_step = [], None
        self._probe = self._predict = None

    def optimizer(self, gradients):
        # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov. Lasagne stores -rate v in place of v. It counts no steps.
        return lasagne.updates.momentum(gradients, self.parameters, 0.01, 0.9)

    def compile(self):
        """The training step as one C++ program, compiled, as people run it for speed. It takes up to a minute: a phase of its own."""
        if self.train_step is None:
            x, y, _, loss, gradients = self.expressions
            updates = self.optimizer(gradients)
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

    def to_own(self, parameters):
        return [turned(name, parameters[name]) for name in NAMES]

    def canonical(self, values):
        return {name: turned(name, value) for name, value in zip(NAMES, values)}
