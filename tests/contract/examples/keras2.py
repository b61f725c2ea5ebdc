"""Keras 2's published way, on Theano and on CNTK: examples/cifar10_cnn.py and examples/imdb_lstm.py of its repository.

As there: one-hot labels for images, softmax as the last layer, categorical cross-entropy. train_on_batch is what fit and fit_generator call
for every mini-batch. Other than there: no metric, this benchmark's layers and optimisers, and for the GRU labels as numbers.
"""

import keras
from keras.layers import GRU, Activation, Conv2D, Dense, Dropout, Embedding, Flatten, MaxPooling2D


def cnn_cifar10(setup, x, y):
    model = keras.models.Sequential()
    model.add(Conv2D(50, (3, 3), padding="same", input_shape=(3, 32, 32)))
    model.add(Activation("relu"))
    model.add(Conv2D(50, (3, 3), padding="same"))
    model.add(Activation("relu"))
    model.add(MaxPooling2D(pool_size=(2, 2)))
    model.add(Dropout(0.25))

    model.add(Conv2D(100, (3, 3), padding="same"))
    model.add(Activation("relu"))
    model.add(Conv2D(100, (3, 3), padding="same"))
    model.add(Activation("relu"))
    model.add(MaxPooling2D(pool_size=(2, 2)))
    model.add(Dropout(0.25))

    model.add(Flatten())
    model.add(Dense(512))
    model.add(Activation("relu"))
    model.add(Dropout(0.5))
    model.add(Dense(10))
    model.add(Activation("softmax"))
    sgd = keras.optimizers.SGD(lr=0.01, momentum=0.9)
    model.compile(loss="categorical_crossentropy", optimizer=sgd)
    labels = keras.utils.to_categorical(y, 10)
    return lambda: model.train_on_batch(x, labels)


def gru_imdb(setup, x, y):
    model = keras.models.Sequential()
    model.add(Embedding(30000, 125, input_length=150))
    model.add(GRU(100, recurrent_activation="sigmoid", reset_after=True))
    model.add(Dense(2, activation="softmax"))
    adam = keras.optimizers.Adam(lr=0.001, epsilon=1e-8)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=adam)
    return lambda: model.train_on_batch(x, y)
