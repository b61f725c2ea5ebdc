"""CNTK's published way: Examples/Image/Classification/ConvNet/Python/ConvNet_CIFAR10.py of its repository.

As there: layers composed under default_options, one-hot labels, a Trainer with loss and error, and a ProgressPrinter told of every
mini-batch. Other than there: this benchmark's layers, rate and momentum (without unit gain), and mini-batches from NumPy.
"""

import numpy as np


def build(setup):
    import cntk as C  # after the adapter's configure(): device and threads are chosen before anything is built

    x_ = C.input_variable((3, 32, 32))
    y_ = C.input_variable(10)
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
    loss, error = C.cross_entropy_with_softmax(z, y_), C.classification_error(z, y_)
    rate, momentum = C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9)
    learner = C.momentum_sgd(z.parameters, rate, momentum, unit_gain=False)
    printer = C.logging.ProgressPrinter(tag="Training")
    trainer = C.Trainer(z, (loss, error), [learner])
    one_hot = np.eye(10, dtype="float32")

    def step(x, y):
        trainer.train_minibatch({x_: x, y_: one_hot[y]})
        printer.update_with_trainer(trainer, with_metric=True)
        return trainer.previous_minibatch_loss_average

    return step
