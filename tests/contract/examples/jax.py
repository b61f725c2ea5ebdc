"""Flax's published way: the MNIST tutorial of its documentation, in NNX.

As there: a Module that keeps its own random streams, nnx.Optimizer, and a train_step under nnx.jit that takes both. Other than there:
this benchmark's layers and optimisers, the loss returned where a metric is updated, and mini-batches from NumPy. The GRU is
Flax's own, nnx.RNN over nnx.GRUCell, which has no recurrent bias on two of the three gates.
"""

import functools

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from bench.frameworks.jax.framework import started


class CNN(nnx.Module):
    def __init__(self, rngs):
        conv = functools.partial(nnx.Conv, kernel_size=(3, 3), rngs=rngs)
        self.conv1, self.conv2 = conv(3, 50), conv(50, 50)
        self.conv3, self.conv4 = conv(50, 100), conv(100, 100)
        self.dropout1, self.dropout2, self.dropout3 = (nnx.Dropout(rate, rngs=rngs) for rate in (0.25, 0.25, 0.5))
        self.linear1, self.linear2 = nnx.Linear(6400, 512, rngs=rngs), nnx.Linear(512, 10, rngs=rngs)
        self.max_pool = functools.partial(nnx.max_pool, window_shape=(2, 2), strides=(2, 2))

    def __call__(self, x):
        x = nnx.relu(self.conv1(x))
        x = self.dropout1(self.max_pool(nnx.relu(self.conv2(x))))
        x = nnx.relu(self.conv3(x))
        x = self.dropout2(self.max_pool(nnx.relu(self.conv4(x))))
        x = x.reshape(x.shape[0], -1)
        x = self.dropout3(nnx.relu(self.linear1(x)))
        return self.linear2(x)


class Sentiment(nnx.Module):
    def __init__(self, rngs):
        self.embedding = nnx.Embed(30000, 125, rngs=rngs)
        self.gru = nnx.RNN(nnx.GRUCell(125, 100, rngs=rngs))
        self.linear = nnx.Linear(100, 2, rngs=rngs)

    def __call__(self, x):
        return self.linear(self.gru(self.embedding(x))[:, -1])


def loss_fn(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits=model(x), labels=y).mean()


@nnx.jit
def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(loss_fn)(model, x, y)
    optimizer.update(model, grads)
    return loss


def loop(model, tx, x, y):
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    model.train()
    return lambda: started(train_step(model, optimizer, jnp.asarray(x), jnp.asarray(y)))


def cnn_cifar10(setup, x, y):
    return loop(CNN(nnx.Rngs(0)), optax.sgd(0.01, momentum=0.9), np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y)


def gru_imdb(setup, x, y):
    return loop(Sentiment(nnx.Rngs(0)), optax.adam(0.001), x, y)
