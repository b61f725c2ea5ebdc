"""DenseNet-121 in Keras 3: a functional model of layers, a loss on logits, Adam; the same file on every backend.

Idiomatic here: the concatenations are the functional API's; padding is a layer of its own where the stride is 2, as in
keras.applications.DenseNet121, which is this network but for its epsilon of 1.001e-5 and its classifier; a BatchNormalization of momentum
0.9 moves its running statistics a tenth of the way, the variance biased. The layout of images is the one its backend computes in (A1).
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
    padding = "same" if stride == 1 else "valid"  # A15: "same" is a padding of 1 for a 3 x 3 kernel of stride 1
    if stride > 1:  # and not symmetric for a stride of 2
        x = layers.ZeroPadding2D(size // 2)(x)
    return layers.Conv2D(filters, size, stride, padding, use_bias=False, name=own(name))(x)


def dense_layer(x, name):
    new = convolved(normalised(x, name + ".norm1"), name + ".conv1", 4 * GROWTH, 1)
    new = convolved(normalised(new, name + ".norm2"), name + ".conv2", GROWTH, 3)
    return layers.Concatenate(axis())([x, new])


def network():
    pictures = keras.Input((3, None, None) if axis() == 1 else (None, None, 3))
    x = normalised(convolved(pictures, "features.conv0", 64, 7, 2), "features.norm0")
    # After a ReLU nothing is below zero, so zeros at the border win over nothing.
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
        optimizer = Adam(learning_rate=1e-4, beta_1=0.9, beta_2=0.999, epsilon=1e-8)
        # A7; the mean over images and findings
        super().__init__(network(), optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
