"""TensorFlow 2's published way: "TensorFlow 2 quickstart for experts" of its tutorials, and the layers of other tutorials.

The GRU is of "Text generation", the perceptron of "Quickstart for beginners", DenseNet-121 of tf.keras.applications, as "Transfer learning"
takes its network. The GPT on bytes is the decoder of "Neural machine translation with a Transformer" without its cross-attention; its
normalisations come before the layers, and its head is the embedding.

As there: a subclass of tf.keras.Model, a loss and an optimiser of Keras, and a train_step under tf.function with a GradientTape. Other than
there: this benchmark's layers and optimisers, the loss returned where a metric is updated, and mini-batches from NumPy.
"""

import numpy as np
import tensorflow as tf
from tensorflow.keras.layers import GRU, Conv2D, Dense, Dropout, Embedding, Flatten, Input, MaxPooling2D, ReLU


class MyModel(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.conv1 = Conv2D(50, 3, padding="same", activation="relu")
        self.conv2 = Conv2D(50, 3, padding="same", activation="relu")
        self.conv3 = Conv2D(100, 3, padding="same", activation="relu")
        self.conv4 = Conv2D(100, 3, padding="same", activation="relu")
        self.pool, self.flatten = MaxPooling2D(), Flatten()
        self.drop1, self.drop2, self.drop3 = Dropout(0.25), Dropout(0.25), Dropout(0.5)
        self.d1, self.d2 = Dense(512, activation="relu"), Dense(10)

    def call(self, x, training=False):
        x = self.conv2(self.conv1(x))
        x = self.drop1(self.pool(x), training=training)
        x = self.conv4(self.conv3(x))
        x = self.drop2(self.pool(x), training=training)
        x = self.d1(self.flatten(x))
        return self.d2(self.drop3(x, training=training))


class Sentiment(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru, self.dense = Embedding(30000, 125), GRU(100), Dense(2)

    def call(self, x, training=False):
        return self.dense(self.gru(self.embedding(x, training=training), training=training), training=training)


def loop(model, optimizer, x, y, loss=tf.keras.losses.SparseCategoricalCrossentropy):
    loss_object = loss(from_logits=True)

    @tf.function
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = loss_object(labels, predictions)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return lambda: train_step(tf.constant(x), tf.constant(y))


def cnn_cifar10(setup, x, y):
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)
    return loop(MyModel(), optimizer, np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y)


def gru_imdb(setup, x, y):
    return loop(Sentiment(), tf.keras.optimizers.Adam(learning_rate=0.001, epsilon=1e-8), x, y)


def cnn_mnist(setup, x, y):
    layers = [Input((28, 28, 1)), Conv2D(16, 2), MaxPooling2D(), ReLU()]
    layers += [Conv2D(8, 2), MaxPooling2D(), ReLU(), Flatten(), Dense(10)]
    adam = tf.keras.optimizers.Adam(learning_rate=0.001, epsilon=1e-8)
    return loop(tf.keras.Sequential(layers), adam, tf.constant(x.transpose(0, 2, 3, 1)), tf.constant(y))


def mlp_mnist(setup, x, y):
    model = tf.keras.Sequential([Input((28, 28)), Flatten(), Dense(32, activation="relu"), Dense(10)])
    return loop(
        model, tf.keras.optimizers.Adam(learning_rate=0.001, epsilon=1e-8), tf.constant(x[:, 0]), tf.constant(y)
    )


def densenet121_chestxray(setup, x, y):
    images = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    base = tf.keras.applications.DenseNet121(False, None, input_shape=images.shape[1:], pooling="avg")
    adam = tf.keras.optimizers.Adam(learning_rate=0.0001, epsilon=1e-8)
    return loop(tf.keras.Sequential([base, Dense(14)]), adam, images, y, tf.keras.losses.BinaryCrossentropy)


class CausalSelfAttention(tf.keras.layers.Layer):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.mha = tf.keras.layers.MultiHeadAttention(num_heads=num_heads, key_dim=d_model // num_heads)
        self.layernorm, self.add = tf.keras.layers.LayerNormalization(epsilon=1e-5), tf.keras.layers.Add()

    def call(self, x):
        normed = self.layernorm(x)
        return self.add([x, self.mha(query=normed, value=normed, key=normed, use_causal_mask=True)])


class FeedForward(tf.keras.layers.Layer):
    def __init__(self, d_model, dff):
        super().__init__()
        self.seq = tf.keras.Sequential([Dense(dff, activation=gelu), Dense(d_model)])
        self.layernorm, self.add = tf.keras.layers.LayerNormalization(epsilon=1e-5), tf.keras.layers.Add()

    def call(self, x):
        return self.add([x, self.seq(self.layernorm(x))])


def gelu(x):
    return tf.nn.gelu(x, approximate=True)


class Decoder(tf.keras.Model):
    def __init__(self, num_layers, d_model, num_heads, dff, vocab_size):
        super().__init__()
        self.embedding, self.positions = Embedding(vocab_size, d_model), Embedding(256, d_model)
        self.attentions = [CausalSelfAttention(d_model, num_heads) for _ in range(num_layers)]
        self.networks = [FeedForward(d_model, dff) for _ in range(num_layers)]
        self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-5)

    def call(self, x, training=False):
        h = self.embedding(x) + self.positions(tf.range(x.shape[1]))
        for attention, network in zip(self.attentions, self.networks, strict=True):
            h = network(attention(h))
        return tf.matmul(self.norm(h), self.embedding.embeddings, transpose_b=True)


def gpt_bytes(setup, x, y):
    adam = tf.keras.optimizers.Adam(0.001, beta_2=0.99, epsilon=1e-8)
    return loop(Decoder(num_layers=6, d_model=384, num_heads=6, dff=4 * 384, vocab_size=256), adam, x, y)
