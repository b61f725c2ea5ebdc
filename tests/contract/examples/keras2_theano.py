"""Keras 2's published way on Theano: examples/cifar10_cnn.py of its repository.

As there: one-hot labels, softmax as the last layer, categorical cross-entropy, accuracy as a metric. train_on_batch is what its
fit_generator calls for every mini-batch. Other than there: this benchmark's layers and SGD.
"""


def build(setup):
    import keras  # after the adapter's configure(), which chooses the backend
    from keras.layers import Activation, Conv2D, Dense, Dropout, Flatten, MaxPooling2D

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
    model.compile(
        loss="categorical_crossentropy", optimizer=keras.optimizers.SGD(lr=0.01, momentum=0.9), metrics=["accuracy"]
    )

    def step(x, y):
        loss, _ = model.train_on_batch(x, keras.utils.to_categorical(y, 10))
        return loss

    return step
