"""Chainer's published way: examples/mnist/train_mnist_custom_loop.py of its repository, and the links of its other examples.

The GRU is of examples/seq2seq, and so is how embedded words become a list of sequences. ResNet-50 is of chainer.links, with the stride
where this benchmark has it (downsample_fb).

As there: a Chain, softmax_cross_entropy, and in each step cleargrads, backward, update; NStepGRU is given a list of sequences. Other
than there: this benchmark's layers and optimisers, and mini-batches from NumPy.
"""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


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


def sequence_embed(embed, sequences):
    """The words of all sequences at once, split into the sequences."""
    ends = np.cumsum([len(sequence) for sequence in sequences[:-1]])
    return F.split_axis(embed(F.concat(sequences, axis=0)), ends, 0)


class Sentiment(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(30000, 125)
            self.gru = L.NStepGRU(1, 125, 100, 0.0)
            self.out = L.Linear(100, 2)

    def forward(self, x):
        last, _ = self.gru(None, sequence_embed(self.embed, list(x)))
        return self.out(last[0])


class MNIST(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1, self.conv2, self.fc = L.Convolution2D(1, 16, 2), L.Convolution2D(16, 8, 2), L.Linear(288, 10)

    def forward(self, x):
        h = F.relu(F.max_pooling_2d(self.conv1(x), 2, cover_all=False))
        return self.fc(F.relu(F.max_pooling_2d(self.conv2(h), 2, cover_all=False)))


class MLP(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(784, 32), L.Linear(32, 10)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x)))


class ResNet50(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.base = L.ResNet50Layers(pretrained_model=None, downsample_fb=True)

    def forward(self, x):
        return self.base(x, layers=["fc6"])["fc6"]


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


def cnn_mnist(setup, x, y):
    return loop(MNIST(), chainer.optimizers.Adam(), x, y)


def mlp_mnist(setup, x, y):
    return loop(MLP(), chainer.optimizers.Adam(), x, y)


def resnet50_imagenet(setup, x, y):
    optimizer = chainer.optimizers.MomentumSGD(lr=0.0125, momentum=0.9)
    step = loop(ResNet50(), optimizer, x, y)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
    return step
