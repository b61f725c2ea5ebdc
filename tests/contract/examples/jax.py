"""Flax's published way: the MNIST tutorial of its documentation, in NNX, and for the perceptron the MLP of "NNX basics".

As there: a Module that keeps its own random streams, nnx.Optimizer, and a train_step under nnx.jit that takes both, with their structure
cached, as Flax's guide to performance has it (nnx.cached_partial). Other than there:
this benchmark's layers and optimisers, the loss returned where a metric is updated, and mini-batches from NumPy. The GRU is
Flax's own, nnx.RNN over nnx.GRUCell, which has no recurrent bias on two of the three gates. The GPT on bytes is the miniGPT of the JAX AI
Stack's tutorials, of nnx.MultiHeadAttention; its normalisations come before the layers, and its head is the embedding.
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


class MNIST(nnx.Module):
    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 16, kernel_size=(2, 2), padding="VALID", rngs=rngs)
        self.conv2 = nnx.Conv(16, 8, kernel_size=(2, 2), padding="VALID", rngs=rngs)
        self.linear = nnx.Linear(288, 10, rngs=rngs)
        self.max_pool = functools.partial(nnx.max_pool, window_shape=(2, 2), strides=(2, 2))

    def __call__(self, x):
        x = nnx.relu(self.max_pool(self.conv1(x)))
        x = nnx.relu(self.max_pool(self.conv2(x)))
        return self.linear(x.reshape(x.shape[0], -1))


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.linear1, self.linear2 = nnx.Linear(784, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.linear2(nnx.relu(self.linear1(x)))


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
    cached = nnx.cached_partial(train_step, model, optimizer)
    return lambda: started(cached(jnp.asarray(x), jnp.asarray(y)))


def cnn_cifar10(setup, x, y):
    return loop(CNN(nnx.Rngs(0)), optax.sgd(0.01, momentum=0.9), np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y)


def gru_imdb(setup, x, y):
    return loop(Sentiment(nnx.Rngs(0)), optax.adam(0.001), x, y)


def cnn_mnist(setup, x, y):
    return loop(MNIST(nnx.Rngs(0)), optax.adam(0.001), jnp.asarray(x.transpose(0, 2, 3, 1)), jnp.asarray(y))


def mlp_mnist(setup, x, y):
    return loop(MLP(nnx.Rngs(0)), optax.adam(0.001), jnp.asarray(x.reshape(len(x), 784)), jnp.asarray(y))


class TransformerBlock(nnx.Module):
    def __init__(self, embed_dim, num_heads, ff_dim, rngs):
        self.mha = nnx.MultiHeadAttention(num_heads=num_heads, in_features=embed_dim, decode=False, rngs=rngs)
        self.layer_norm1, self.layer_norm2 = (nnx.LayerNorm(embed_dim, epsilon=1e-5, rngs=rngs) for _ in range(2))
        self.linear1, self.linear2 = nnx.Linear(embed_dim, ff_dim, rngs=rngs), nnx.Linear(ff_dim, embed_dim, rngs=rngs)

    def __call__(self, inputs):
        mask = jnp.tril(jnp.ones((inputs.shape[1], inputs.shape[1])))
        inputs = inputs + self.mha(self.layer_norm1(inputs), mask=mask)
        return inputs + self.linear2(nnx.gelu(self.linear1(self.layer_norm2(inputs))))


class MiniGPT(nnx.Module):
    def __init__(self, maxlen, vocab_size, embed_dim, num_heads, feed_forward_dim, num_transformer_blocks, rngs):
        self.token_emb = nnx.Embed(vocab_size, embed_dim, rngs=rngs)
        self.pos_emb = nnx.Embed(maxlen, embed_dim, rngs=rngs)
        self.transformer_blocks = nnx.List(
            [TransformerBlock(embed_dim, num_heads, feed_forward_dim, rngs) for _ in range(num_transformer_blocks)]
        )
        self.norm = nnx.LayerNorm(embed_dim, epsilon=1e-5, rngs=rngs)

    def __call__(self, inputs):
        positions = jnp.arange(0, inputs.shape[1])[None, :]
        x = self.token_emb(inputs) + self.pos_emb(positions)
        for transformer_block in self.transformer_blocks:
            x = transformer_block(x)
        return self.token_emb.attend(self.norm(x))


def gpt_bytes(setup, x, y):
    model = MiniGPT(256, 256, 384, 6, 4 * 384, 6, rngs=nnx.Rngs(0))
    return loop(model, optax.adam(0.001, b2=0.99), x, y)
