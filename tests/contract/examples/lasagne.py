"""Lasagne's published way: examples/mnist.py and examples/recurrent.py of its repository, in the form of release 0.1.

As there: layers with their nonlinearity, padding "same", softmax as the last layer, mean categorical cross-entropy, and one theano.function
that returns the loss and updates. Other than there: this benchmark's layers, plain momentum and Adam, and gradients that are not clipped.
"""

import lasagne
import theano
import theano.tensor as T
from lasagne import layers


def loop(net, x_, update, x, y):
    y_ = T.ivector("targets")
    prediction = layers.get_output(net)
    loss = lasagne.objectives.categorical_crossentropy(prediction, y_).mean()
    updates = update(loss, layers.get_all_params(net, trainable=True))
    train_fn = theano.function([x_, y_], loss, updates=updates)
    return lambda: train_fn(x, y)


def cnn_cifar10(setup, x, y):
    x_ = T.tensor4("inputs")

    def conv(net, filters):
        return layers.Conv2DLayer(net, filters, (3, 3), pad="same", nonlinearity=lasagne.nonlinearities.rectify)

    net = layers.InputLayer((None, 3, 32, 32), x_)
    net = layers.MaxPool2DLayer(conv(conv(net, 50), 50), (2, 2))
    net = layers.dropout(net, p=0.25)
    net = layers.MaxPool2DLayer(conv(conv(net, 100), 100), (2, 2))
    net = layers.dropout(net, p=0.25)
    net = layers.DenseLayer(net, 512, nonlinearity=lasagne.nonlinearities.rectify)
    net = layers.DenseLayer(layers.dropout(net, p=0.5), 10, nonlinearity=lasagne.nonlinearities.softmax)

    def momentum(loss, parameters):
        return lasagne.updates.momentum(loss, parameters, learning_rate=0.01, momentum=0.9)

    return loop(net, x_, momentum, x, y)


def gru_imdb(setup, x, y):
    x_ = T.imatrix("inputs")
    net = layers.EmbeddingLayer(layers.InputLayer((None, 150), x_), 30000, 125)
    net = layers.SliceLayer(layers.GRULayer(net, 100), -1, axis=1)
    net = layers.DenseLayer(net, 2, nonlinearity=lasagne.nonlinearities.softmax)
    return loop(net, x_, lasagne.updates.adam, x, y)
