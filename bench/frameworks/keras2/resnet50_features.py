"""ResNet-50's features in Keras 2: a functional model of layers, predict_on_batch; the same file on Theano and CNTK.

Idiomatic here: shortcuts are the functional API's; padding is a layer of its own where the stride is 2, as in keras.applications.ResNet50,
which is not this network (it has the stride on the 1 x 1 convolution, biases and another epsilon); the normalisations are told that they
do not train, so that the graph has the path of evaluation only (A21). Images stay N, C, H, W, the order of both backends (A1).
"""

import numpy as np
from keras import layers, models

from bench.frameworks.keras2.cnn_cifar10 import turn
from bench.workloads.resnet50_features import EPSILON, EXPANSION, SHAPE, blocks

ORDER = "channels_first"
# Theano takes no epsilon below 1e-5, and in float32 that number is: the next one is 1e-12 more.
NEXT_EPSILON = float(np.nextafter(np.float32(EPSILON), np.float32(1)))


def normalised(x, convolution, norm, filters, size=1, stride=1):
    padding = "same" if stride == 1 else "valid"  # A15: "same" is a padding of 1 for a 3 x 3 kernel of stride 1
    if stride > 1 and size > 1:  # and not symmetric for a stride of 2
        x = layers.ZeroPadding2D(size // 2, data_format=ORDER)(x)
    kernel = dict(strides=stride, padding=padding, data_format=ORDER, use_bias=False)
    x = layers.Conv2D(filters, size, name=convolution, **kernel)(x)
    return layers.BatchNormalization(axis=1, epsilon=NEXT_EPSILON, name=norm)(x, training=False)


def relu(x):
    return layers.Activation("relu")(x)


def bottleneck(x, name, channels, stride, shortcut):
    h = relu(normalised(x, name + ".conv1", name + ".bn1", channels))
    h = relu(normalised(h, name + ".conv2", name + ".bn2", channels, 3, stride))
    h = normalised(h, name + ".conv3", name + ".bn3", EXPANSION * channels)
    if shortcut:
        x = normalised(x, name + ".downsample.0", name + ".downsample.1", EXPANSION * channels, 1, stride)
    return relu(layers.add([h, x]))


def network():
    images = layers.Input(SHAPE)
    x = relu(normalised(images, "conv1", "bn1", 64, 7, 2))
    # After a ReLU nothing is below zero, so zeros at the border win over nothing.
    x = layers.ZeroPadding2D(1, data_format=ORDER)(x)
    x = layers.MaxPooling2D(3, strides=2, data_format=ORDER)(x)
    for name, channels, stride, shortcut in blocks():
        x = bottleneck(x, name, channels, stride, shortcut)
    return models.Model(images, layers.GlobalAveragePooling2D(data_format=ORDER)(x))


class Inference(object):
    def __init__(self, setup):
        self.model = network()

    def compile(self):
        """Keras makes its function here: in Theano a C++ program, and so a phase of its own."""
        self.model._make_predict_function()

    def load(self, parameters):
        """A convolution has a kernel; a normalisation scale, bias, mean and variance, in this order."""
        values = {}
        for name, value in parameters.items():
            value = turn(value, (2, 3, 1, 0)) if value.ndim == 4 else value
            values.setdefault(name.rpartition(".")[0], []).append(value)
        for name, found in values.items():
            self.model.get_layer(name).set_weights(found)

    def inputs(self, x):
        return x

    def predict(self, x):
        return self.model.predict_on_batch(x)
