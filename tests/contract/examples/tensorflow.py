"""TensorFlow 2's published way: "TensorFlow 2 quickstart for experts" of its tutorials, and the layers of other tutorials.

The GRU is of "Text generation", the perceptron of "Quickstart for beginners", DenseNet-121 of tf.keras.applications, as "Transfer learning"
takes its network.

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
