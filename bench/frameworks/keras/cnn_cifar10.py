"""The CIFAR-10 network in Keras 3: a Sequential of layers, a loss on logits, SGD; the same file on every backend.

Idiomatic here: images have the layout in which the backend computes; they are permuted once, before training. The last layer has no
softmax: the loss takes logits.
"""

import keras
from keras import layers

from bench.frameworks.keras import _images, _mixed
from bench.frameworks.keras._trained import Layered


def network(seed):
    # Stride and padding are explicit: defaults differ among frameworks. "same" pads a 3 x 3 kernel by 1.
    def conv(filters, name):
        return layers.Conv2D(filters, 3, padding="same", name=name)

    def pool():
        return layers.MaxPooling2D(2, strides=2)

    first = keras.config.image_data_format() == "channels_first"
    return keras.Sequential(
        [
            keras.Input((3, 32, 32) if first else (32, 32, 3)),
            conv(50, "conv1"),
            layers.ReLU(),
            conv(50, "conv2"),
            # ReLU after the pooling: the same values, a quarter of the work.
            pool(),
            layers.ReLU(),
            layers.Dropout(0.25, seed=seed),
            conv(100, "conv3"),
            layers.ReLU(),
            conv(100, "conv4"),
            pool(),
            layers.ReLU(),
            layers.Dropout(0.25, seed=seed + 1),
            # Reshape keeps the order in memory. Flatten would transpose channels-first images.
            layers.Reshape((6400,)),
            layers.Dense(512, activation="relu", name="dense1"),
            layers.Dropout(0.5, seed=seed + 2),
            layers.Dense(10, name="dense2"),
        ]
    )


class Training(Layered):
    LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")

    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        self.channels_first = _images.channels_first()
        # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov. Keras stores -rate v in place of v.
        optimizer = _mixed.optimizer(setup, keras.optimizers.SGD(learning_rate=0.01, momentum=0.9))
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # Dropout only in training.
        super().__init__(network(setup.seed), optimizer, loss, dropout=setup.training)
        drawing = [layer for layer in self.network.layers if isinstance(layer, layers.Dropout)]
        self.seeds = [layer.seed_generator.state for layer in drawing]

    def masks(self):
        self.loop.finish()
        return [keras.ops.convert_to_numpy(seed).copy() for seed in self.seeds]

    def redraw(self, masks):
        for seed, state in zip(self.seeds, masks):
            seed.assign(state)
        self.loop.start()

    def inputs(self, x, y):
        return _images.contiguous(x), y

    def to_keras(self, name, w):
        """Canonical weights -> Keras': kernels (kh, kw, in, out), dense (in, out)."""
        if name.startswith("conv"):
            return w.transpose(2, 3, 1, 0)
        if name == "dense1" and not self.channels_first:
            w = w.reshape(512, 100, 8, 8).transpose(0, 2, 3, 1).reshape(512, 6400)
        return w.T

    def from_keras(self, name, w):
        if name.startswith("conv"):
            return w.transpose(3, 2, 0, 1)
        w = w.T
        if name == "dense1" and not self.channels_first:
            w = w.reshape(512, 8, 8, 100).transpose(0, 3, 1, 2).reshape(512, 6400)
        return w
