"""Gluon's published way: example/gluon/mnist/mnist.py of MXNet's repository, and for the GRU the layers of its word_language_model.

As there: blocks, SoftmaxCrossEntropyLoss, autograd.record, and a Trainer that is told the size of the mini-batch. Other than there:
the blocks are hybridised, as image_classification.py has it, this benchmark's layers and optimisers, no metric, and mini-batches from NumPy.
"""

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn


class Sentiment(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.encoder = nn.Embedding(30000, 125)
            self.rnn = rnn.GRU(100, layout="NTC", input_size=125)
            self.decoder = nn.Dense(2, in_units=100)

    def hybrid_forward(self, F, x):
        return self.decoder(F.slice_axis(self.rnn(self.encoder(x)), axis=1, begin=-1, end=None))


def loop(net, optimizer, options, x, y):
    context = mx.cpu()
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, options)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def step():
        data, label = mx.nd.array(x).as_in_context(context), mx.nd.array(y).as_in_context(context)
        with autograd.record():
            output = net(data)
            L = loss(output, label)
            L.backward()
        trainer.step(data.shape[0])
        return L

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
