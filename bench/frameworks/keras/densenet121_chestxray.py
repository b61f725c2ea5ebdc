"""DenseNet-121 in Keras 3: a functional model of layers, a loss on logits, Adam; the same file on every backend.

Idiomatic here: concatenations use the functional API. Where the stride is 2, padding is a layer of its own, as in
keras.applications.DenseNet121; that network differs in its epsilon of 1.001e-5 and its classifier only. With momentum 0.9 a
BatchNormalization moves its running statistics a tenth of the way, the variance biased. Images have the layout in which the backend
computes.
"""

import keras
from keras import layers

from bench.frameworks.keras import _images
from bench.frameworks.keras._adam import Adam
from bench.frameworks.keras._pictures import Trained, own

LAYERS = (6, 12, 24, 16)
GROWTH = 32


def axis():
    return 1 if _images.channels_first() else -1


def normalised(x, name):
    x = layers.BatchNormalization(axis=axis(), momentum=0.9, epsilon=1e-5, name=own(name))(x)
    return layers.ReLU()(x)


def convolved(x, name, filters, size, stride=1):
    # Stride and padding are explicit: "same" is symmetric for stride 1, but not for stride 2.
    padding = "same" if stride == 1 else "valid"
    if stride > 1:
        x = layers.ZeroPadding2D(size // 2)(x)
    return layers.Conv2D(filters, size, stride, padding, use_bias=False, name=own(name))(x)


def dense_layer(x, name):
    new = convolved(normalised(x, name + ".norm1"), name + ".conv1", 4 * GROWTH, 1)
    new = convolved(normalised(new, name + ".norm2"), name + ".conv2", GROWTH, 3)
    return layers.Concatenate(axis())([x, new])


def network():
    pictures = keras.Input((3, None, None) if axis() == 1 else (None, None, 3))
    x = normalised(convolved(pictures, "features.conv0", 64, 7, 2), "features.norm0")
    # ReLU leaves nothing below zero: zeros at the border do not change the maximum.
    x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))
    for block, count in enumerate(LAYERS, 1):
        for index in range(count):
            x = dense_layer(x, "features.denseblock%d.denselayer%d" % (block, index + 1))
        if block < len(LAYERS):
            name = "features.transition%d" % block
            x = convolved(normalised(x, name + ".norm"), name + ".conv", x.shape[axis()] // 2, 1)
            x = layers.AveragePooling2D(2, strides=2)(x)
    x = layers.GlobalAveragePooling2D()(normalised(x, "features.norm5"))
    return keras.Model(pictures, layers.Dense(14, name="classifier")(x))


class Training(Trained):
    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        # Adam's constants are explicit: defaults differ among frameworks. Keras' epsilon would be 1e-7.
        optimizer = Adam(learning_rate=1e-4, beta_1=0.9, beta_2=0.999, epsilon=1e-8)
        # The loss takes logits: there is exactly one sigmoid. It is the mean over images and findings.
        super().__init__(network(), optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
