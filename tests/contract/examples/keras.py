"""Keras 3's published way: its guides "Writing a training loop from scratch" in TensorFlow, JAX and PyTorch.

The networks on MNIST are of "Simple MNIST convnet" and the guide's own, DenseNet-121 of keras.applications, the GPT on bytes of "Text
generation with a miniature GPT": layers.MultiHeadAttention and two Dense, whose normalisations come before the layers here.

As there: a model, a loss on logits, an optimiser of Keras, and each guide's fast train step: under tf.function, jitted and
stateless, of torch's autograd. Other than there: this benchmark's layers and optimisers, no metric, and mini-batches from NumPy.
"""

import keras
import numpy as np
from keras import layers


def cnn():
    first = keras.config.image_data_format() == "channels_first"
    return keras.Sequential(
        [
            keras.Input((3, 32, 32) if first else (32, 32, 3)),
            layers.Conv2D(50, 3, padding="same", activation="relu"),
            layers.Conv2D(50, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Conv2D(100, 3, padding="same", activation="relu"),
            layers.Conv2D(100, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )


def sentiment():
    return keras.Sequential(
        [keras.Input((150,), dtype="int32"), layers.Embedding(30000, 125), layers.GRU(100), layers.Dense(2)]
    )


def on_tensorflow(model, loss_fn, optimizer, x, y):
    import tensorflow as tf

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss_value = loss_fn(y, model(x, training=True))
        grads = tape.gradient(loss_value, model.trainable_weights)
        optimizer.apply(grads, model.trainable_weights)
        return loss_value

    return lambda: train_step(tf.constant(x), tf.constant(y))


def on_jax(model, loss_fn, optimizer, x, y):
    import jax

    from bench.frameworks.jax.framework import started

    optimizer.build(model.trainable_variables)
    groups = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    state = tuple([variable.value for variable in group] for group in groups)

    def compute_loss_and_updates(trainable, non_trainable, x, y):
        y_pred, non_trainable = model.stateless_call(trainable, non_trainable, x, training=True)
        return loss_fn(y, y_pred), non_trainable

    grad_fn = jax.value_and_grad(compute_loss_and_updates, has_aux=True)

    @jax.jit
    def train_step(state, x, y):
        trainable, non_trainable, moments = state
        (loss, non_trainable), grads = grad_fn(trainable, non_trainable, x, y)
        trainable, moments = optimizer.stateless_apply(moments, grads, trainable)
        return loss, (trainable, non_trainable, moments)

    def step():
        nonlocal state
        loss, state = train_step(state, x, y)
        return started(loss)

    return step


def on_torch(model, loss_fn, optimizer, x, y):
    import torch

    def step():
        logits = model(torch.as_tensor(x), training=True)
        loss = loss_fn(torch.as_tensor(y), logits)
        model.zero_grad()
        trainable_weights = list(model.trainable_weights)
        loss.backward()
        gradients = [v.value.grad for v in trainable_weights]
        with torch.no_grad():
            optimizer.apply(gradients, trainable_weights)
        return loss

    return step


def loop(model, optimizer, x, y, loss=keras.losses.SparseCategoricalCrossentropy):
    loss_fn = loss(from_logits=True)
    on = {"tensorflow": on_tensorflow, "jax": on_jax, "torch": on_torch}[keras.backend.backend()]
    return on(model, loss_fn, optimizer, x, y)


def images(x):
    """In the backend's order."""
    return x if keras.config.image_data_format() == "channels_first" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def cnn_cifar10(setup, x, y):
    return loop(cnn(), keras.optimizers.SGD(learning_rate=0.01, momentum=0.9), images(x), y)


def gru_imdb(setup, x, y):
    return loop(sentiment(), keras.optimizers.Adam(learning_rate=0.001, epsilon=1e-8), x, y)


def resident(x, y):
    """Arrays that lie on the device before the first step."""
    return keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)


def cnn_mnist(setup, x, y):
    x = images(x)
    first = [keras.Input(x.shape[1:]), layers.Conv2D(16, 2), layers.MaxPooling2D(2), layers.ReLU()]
    second = [layers.Conv2D(8, 2), layers.MaxPooling2D(2), layers.ReLU(), layers.Flatten(), layers.Dense(10)]
    adam = keras.optimizers.Adam(learning_rate=0.001, epsilon=1e-8)
    return loop(keras.Sequential(first + second), adam, *resident(x, y))


def mlp_mnist(setup, x, y):
    model = keras.Sequential([keras.Input((784,)), layers.Dense(32, activation="relu"), layers.Dense(10)])
    adam = keras.optimizers.Adam(learning_rate=0.001, epsilon=1e-8)
    return loop(model, adam, *resident(x.reshape(len(x), 784), y))


def densenet121_chestxray(setup, x, y):
    x = images(x)
    base = keras.applications.DenseNet121(
        include_top=False, weights=None, input_shape=x.shape[1:], pooling="avg", name="densenet"
    )
    adam = keras.optimizers.Adam(learning_rate=0.0001, epsilon=1e-8)
    return loop(keras.Sequential([base, layers.Dense(14)]), adam, x, y, keras.losses.BinaryCrossentropy)


class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads, embed_dim // num_heads)
        self.ffn = keras.Sequential([layers.Dense(ff_dim, activation=gelu), layers.Dense(embed_dim)])
        self.layernorm1, self.layernorm2 = (layers.LayerNormalization(epsilon=1e-5) for _ in range(2))

    def call(self, inputs):
        normed = self.layernorm1(inputs)
        inputs = inputs + self.att(normed, normed, use_causal_mask=True)
        return inputs + self.ffn(self.layernorm2(inputs))


def gelu(x):
    return keras.ops.gelu(x, approximate=True)


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb, self.pos_emb = layers.Embedding(vocab_size, embed_dim), layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        return self.token_emb(x) + self.pos_emb(keras.ops.arange(0, x.shape[-1], 1))


class OfEmbedding(layers.Layer):
    """The head is the embedding's weight."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, x):
        return keras.ops.matmul(x, keras.ops.transpose(self.embedding.token_emb.embeddings))


def gpt_bytes(setup, x, y):
    embedding = TokenAndPositionEmbedding(256, 256, 384)
    inputs = keras.Input((256,), dtype="int32")
    h = embedding(inputs)
    for _ in range(6):
        h = TransformerBlock(384, 6, 4 * 384)(h)
    outputs = OfEmbedding(embedding)(layers.LayerNormalization(epsilon=1e-5)(h))
    adam = keras.optimizers.Adam(learning_rate=0.001, beta_2=0.99, epsilon=1e-8)
    return loop(keras.Model(inputs, outputs), adam, x, y)
