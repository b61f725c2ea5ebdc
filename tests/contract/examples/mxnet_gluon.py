"""Gluon's published way: example/gluon/mnist/mnist.py of MXNet's repository, and the layers of its other examples.

The GRU is of word_language_model, DenseNet-121 of Gluon's model zoo, as image_classification.py takes its network.

As there: blocks, SoftmaxCrossEntropyLoss, autograd.record, and a Trainer that is told the size of the mini-batch. Other than there:
the blocks are hybridised with static memory, as MXNet's guide to performance advises, the layers and optimisers, no metric, mini-batches
from NumPy.
"""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn


class Sentiment(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.encoder = nn.Embedding(30000, 125)
            self.rnn = rnn.GRU(100, layout="NTC", input_size=125)
            self.decoder = nn.Dense(2, in_units=100)

    def hybrid_forward(self, F, x):  # noqa: N803  MXNet calls it so
        return self.decoder(F.slice_axis(self.rnn(self.encoder(x)), axis=1, begin=-1, end=None))


def loop(net, optimizer, options, x, y, loss=gluon.loss.SoftmaxCrossEntropyLoss):
    context = mx.cpu()
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize(static_alloc=True, static_shape=True)
    trainer = gluon.Trainer(net.collect_params(), optimizer, options)
    criterion = loss()
    criterion.hybridize(static_alloc=True, static_shape=True)

    def step():
        data, label = (mx.nd.array(x), mx.nd.array(y)) if isinstance(x, np.ndarray) else (x, y)
        data, label = data.as_in_context(context), label.as_in_context(context)
        with autograd.record():
            output = net(data)
            losses = criterion(output, label)
            losses.backward()
        trainer.step(data.shape[0])
        return losses

    return step


def cnn_cifar10(setup, x, y):
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(50, 3, padding=1, activation="relu"), nn.Conv2D(50, 3, padding=1, activation="relu"))
        net.add(nn.MaxPool2D(2, 2), nn.Dropout(0.25))
        net.add(nn.Conv2D(100, 3, padding=1, activation="relu"), nn.Conv2D(100, 3, padding=1, activation="relu"))
        net.add(nn.MaxPool2D(2, 2), nn.Dropout(0.25))
        net.add(nn.Dense(512, activation="relu"), nn.Dropout(0.5), nn.Dense(10))
    return loop(net, "sgd", {"learning_rate": 0.01, "momentum": 0.9}, x, y)


def gru_imdb(setup, x, y):
    return loop(Sentiment(), "adam", {"learning_rate": 0.001}, x, y)


def cnn_mnist(setup, x, y):
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(16, 2), nn.MaxPool2D(2, 2), nn.Activation("relu"))
        net.add(nn.Conv2D(8, 2), nn.MaxPool2D(2, 2), nn.Activation("relu"), nn.Dense(10))
    return loop(net, "adam", {"learning_rate": 0.001}, mx.nd.array(x), mx.nd.array(y))


def mlp_mnist(setup, x, y):
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(32, activation="relu"), nn.Dense(10))
    return loop(net, "adam", {"learning_rate": 0.001}, mx.nd.array(x), mx.nd.array(y))


def densenet121_chestxray(setup, x, y):
    net = gluon.model_zoo.vision.densenet121(classes=14)
    # The zoo's last pooling takes 7 x 7 positions, those of an image of 224 x 224. A global one takes any number.
    net.features._children[list(net.features._children)[-2]] = nn.GlobalAvgPool2D()
    return loop(net, "adam", {"learning_rate": 0.0001}, x, y, gluon.loss.SigmoidBinaryCrossEntropyLoss)
