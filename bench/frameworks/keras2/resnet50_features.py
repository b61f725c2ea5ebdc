"""ResNet-50's features in Keras 2: a functional model of layers, predict_on_batch; the same file on Theano and CNTK.

Idiomatic here: shortcuts use the functional API. Where the stride is 2, padding is a layer of its own, as in keras.applications.ResNet50.
That is another network: its 1 x 1 convolutions have the stride, its convolutions have biases, and its epsilon differs. With
training=False the graph holds the normalisations' form in evaluation only.
"""

import numpy as np
from keras import layers, models

from bench import contract
from bench.frameworks.keras2.cnn_cifar10 import turn
from bench.workloads.resnet50_features import EPSILON, EXPANSION, SHAPE, blocks

# Channels first, the layout that cuDNN computes in.
ORDER = "channels_first"
# Theano refuses an epsilon below 1e-5, and 1e-5 in float32 is below it. The next float32 is 1e-12 larger.
NEXT_EPSILON = float(np.nextafter(np.float32(EPSILON), np.float32(1)))


def normalised(x, convolution, norm, filters, size=1, stride=1):
    # Stride and padding are explicit: "same" is symmetric for stride 1, but not for stride 2.
    padding = "same" if stride == 1 else "valid"
    if stride > 1 and size > 1:
        x = layers.ZeroPadding2D(size // 2, data_format=ORDER)(x)
    kernel = dict(strides=stride, padding=padding, data_format=ORDER, use_bias=False)
    x = layers.Conv2D(filters, size, name=convolution, **kernel)(x)
    # Evaluation uses the running statistics. No gradients in evaluation: they cost memory and time.
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
    # ReLU leaves nothing below zero: zeros at the border do not change the maximum.
    x = layers.ZeroPadding2D(1, data_format=ORDER)(x)
    x = layers.MaxPooling2D(3, strides=2, data_format=ORDER)(x)
    for name, channels, stride, shortcut in blocks():
        x = bottleneck(x, name, channels, stride, shortcut)
    return models.Model(images, layers.GlobalAveragePooling2D(data_format=ORDER)(x))


class Inference(contract.Inference):
    def __init__(self, setup):
        self.model = network()

    def compile(self):
        """Keras makes its function. Theano compiles it as a C++ program, which takes long: it is a phase of its own."""
        self.model._make_predict_function()

    def load(self, parameters):
        """A convolution has a kernel. A normalisation has scale, bias, mean and variance, in this order."""
        values = {}
        for name, value in parameters.items():
            value = turn(value, (2, 3, 1, 0)) if value.ndim == 4 else value
            values.setdefault(name.rpartition(".")[0], []).append(value)
        for name, arrays in values.items():
            self.model.get_layer(name).set_weights(arrays)

    def inputs(self, x):
        return x

    def predict(self, x):
        return self.model.predict_on_batch(x)
