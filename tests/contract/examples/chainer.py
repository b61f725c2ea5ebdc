"""Chainer's published way: examples/mnist/train_mnist_custom_loop.py of its repository, and for the GRU the links of its examples/seq2seq.

As there: a Chain, softmax_cross_entropy, and in each step cleargrads, backward, update; NStepGRU is given a list of sequences. Other
than there: this benchmark's layers and optimisers, and mini-batches from NumPy.
"""

import chainer
import chainer.functions as F
import chainer.links as L


class CNN(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1, self.conv2 = L.Convolution2D(3, 50, 3, pad=1), L.Convolution2D(50, 50, 3, pad=1)
            self.conv3, self.conv4 = L.Convolution2D(50, 100, 3, pad=1), L.Convolution2D(100, 100, 3, pad=1)
            self.l1, self.l2 = L.Linear(6400, 512), L.Linear(512, 10)

    def forward(self, x):
        h = F.relu(self.conv1(x))
        h = F.dropout(F.max_pooling_2d(F.relu(self.conv2(h)), 2), 0.25)
        h = F.relu(self.conv3(h))
        h = F.dropout(F.max_pooling_2d(F.relu(self.conv4(h)), 2), 0.25)
        return self.l2(F.dropout(F.relu(self.l1(h)), 0.5))


class Sentiment(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(30000, 125)
            self.gru = L.NStepGRU(1, 125, 100, 0.0)
            self.out = L.Linear(100, 2)

    def forward(self, x):
        last, _ = self.gru(None, [words for words in self.embed(x)])
        return self.out(last[0])


def loop(model, optimizer, x, y):
    optimizer.setup(model)

    def step():
        loss = F.softmax_cross_entropy(model(x), y)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        return loss.array

    return step


def cnn_cifar10(setup, x, y):
    return loop(CNN(), chainer.optimizers.MomentumSGD(lr=0.01, momentum=0.9), x, y)


def gru_imdb(setup, x, y):
    return loop(Sentiment(), chainer.optimizers.Adam(), x, y)
