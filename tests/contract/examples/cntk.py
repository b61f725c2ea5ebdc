"""CNTK's published way: of its repository, Examples/Image/Classification/ConvNet/Python/ConvNet_CIFAR10.py, and for the GRU
Examples/SequenceClassification/SimpleExample/Python/SequenceClassification.py.

As there: layers composed, one-hot labels, a Trainer. Other than there: no error metric and no ProgressPrinter, which read from the device
in every step, this benchmark's layers, rates and momentum (without unit gain), Adam, and mini-batches from NumPy. C.layers.GRU applies the
reset gate before the recurrent product. Words are gathered, since C.adam has no sparse update on a CPU, which C.layers.Embedding would
need.
"""

import cntk as C
import numpy as np


def loop(z, learner, x_, x, y):
    classes = z.shape[-1]
    y_ = C.input_variable(classes)
    trainer = C.Trainer(z, (C.cross_entropy_with_softmax(z, y_),), [learner])
    labels = np.eye(classes, dtype="float32")[y]
    return lambda: trainer.train_minibatch({x_: x, y_: labels})


def cnn_cifar10(setup, x, y):
    x_ = C.input_variable((3, 32, 32))
    with C.layers.default_options(activation=C.relu, pad=True):
        z = C.layers.Sequential(
            [
                C.layers.Convolution2D((3, 3), 50),
                C.layers.Convolution2D((3, 3), 50),
                C.layers.MaxPooling((2, 2), (2, 2), pad=False),
                C.layers.Dropout(0.25),
                C.layers.Convolution2D((3, 3), 100),
                C.layers.Convolution2D((3, 3), 100),
                C.layers.MaxPooling((2, 2), (2, 2), pad=False),
                C.layers.Dropout(0.25),
                C.layers.Dense(512),
                C.layers.Dropout(0.5),
                C.layers.Dense(10, activation=None),
            ]
        )(x_)
    rate, momentum = C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9)
    return loop(z, C.momentum_sgd(z.parameters, rate, momentum, unit_gain=False), x_, x, y)


def gru_imdb(setup, x, y):
    x_ = C.sequence.input_variable((1,))
    words = C.reshape(C.gather(C.parameter((30000, 125), init=C.glorot_uniform()), x_), (125,))
    z = C.layers.Sequential([C.layers.Fold(C.layers.GRU(100)), C.layers.Dense(2)])(words)
    rate, momentum = C.learning_parameter_schedule(0.001), C.momentum_schedule(0.9)
    learner = C.adam(z.parameters, rate, momentum, variance_momentum=C.momentum_schedule(0.999), unit_gain=False)
    return loop(z, learner, x_, x.astype("float32")[:, :, None], y)
