"""The CIFAR-10 network in Lasagne: a stack of layers, from which Theano makes one compiled function.

Idiomatic here: layers only describe the network. get_output makes an expression of them, and theano.function compiles step and update
together. Theano's convolution flips its kernels (it convolves; others correlate): filter_flip=False stops that.
"""

import theano.tensor as T
from lasagne import layers, updates
from lasagne.nonlinearities import identity, rectify

from bench.frameworks.lasagne._loop import Trained

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


class Training(Trained):
    def __init__(self, setup):
        x = T.tensor4("x")
        net = relu(Padded(layers.InputLayer((64, 3, 32, 32), x), 50))
        # ReLU after the pooling: the same values, a quarter of the work.
        net = relu(layers.MaxPool2DLayer(Padded(net, 50), 2))
        net = layers.DropoutLayer(net, 0.25)
        net = relu(Padded(net, 100))
        net = relu(layers.MaxPool2DLayer(Padded(net, 100), 2))
        net = layers.DropoutLayer(net, 0.25)
        # DenseLayer flattens its input, in C, H, W order.
        net = layers.DropoutLayer(layers.DenseLayer(net, 512, nonlinearity=rectify), 0.5)
        net = layers.DenseLayer(net, 10, nonlinearity=identity)
        super(Training, self).__init__(setup, x, net, layers.get_all_params(net, trainable=True))

    def updates(self, gradients, parameters):
        # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov. Lasagne stores -rate v in place of v.
        return updates.momentum(gradients, parameters, 0.01, 0.9)

    def to_own(self, parameters):
        return [turned(name, parameters[name]) for name in NAMES]

    def canonical(self, values):
        return {name: turned(name, value) for name, value in zip(NAMES, values)}
