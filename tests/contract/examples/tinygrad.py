"""tinygrad's published way: examples/beautiful_mnist.py of its repository, and for the perceptron its documentation's quick start.

As there: a class that holds layers and calls them in turn, and a TinyJit step of zero_grad, backward and one schedule for the loss and
the update. Other than there: this benchmark's layers, SGD with momentum, and mini-batches from NumPy, not drawn on the device. It has
no GRU: neither its examples nor its layers do.
"""

import numpy as np
from tinygrad import Context, Tensor, TinyJit, nn


class Model:
    def __init__(self):
        self.conv1, self.conv2 = nn.Conv2d(3, 50, 3, padding=1), nn.Conv2d(50, 50, 3, padding=1)
        self.conv3, self.conv4 = nn.Conv2d(50, 100, 3, padding=1), nn.Conv2d(100, 100, 3, padding=1)
        self.l1, self.l2 = nn.Linear(6400, 512), nn.Linear(512, 10)

    def __call__(self, x):
        x = self.conv1(x).relu()
        x = self.conv2(x).relu().max_pool2d().dropout(0.25)
        x = self.conv3(x).relu()
        x = self.conv4(x).relu().max_pool2d().dropout(0.25)
        return self.l2(self.l1(x.flatten(1)).relu().dropout(0.5))


class MNIST:
    def __init__(self):
        self.conv1, self.conv2, self.l1 = nn.Conv2d(1, 16, 2), nn.Conv2d(16, 8, 2), nn.Linear(288, 10)

    def __call__(self, x):
        x = self.conv1(x).max_pool2d().relu()
        return self.l1(self.conv2(x).max_pool2d().relu().flatten(1))


def loop(model, optimizer, x, y):
    @TinyJit
    @Context(TRAINING=1)
    def train_step(x, y):
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    def step():
        images, labels = (Tensor(x).realize(), Tensor(y).realize()) if isinstance(x, np.ndarray) else (x, y)
        return train_step(images, labels)

    return step


def cnn_cifar10(setup, x, y):
    model = Model()
    return loop(model, nn.optim.SGD(nn.state.get_parameters(model), lr=0.01, momentum=0.9), x, y)


def cnn_mnist(setup, x, y):
    model = MNIST()
    return loop(
        model, nn.optim.Adam(nn.state.get_parameters(model), lr=0.001), Tensor(x).realize(), Tensor(y).realize()
    )


class TinyNet:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(784, 32), nn.Linear(32, 10)

    def __call__(self, x):
        return self.l2(self.l1(x.flatten(1)).relu())


def mlp_mnist(setup, x, y):
    model = TinyNet()
    return loop(
        model, nn.optim.Adam(nn.state.get_parameters(model), lr=0.001), Tensor(x).realize(), Tensor(y).realize()
    )
