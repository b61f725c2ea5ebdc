"""ResNet-50's features in Keras 3: a functional model of layers, predict_on_batch; the same file on every backend.

Idiomatic here: shortcuts use the functional API. Where the stride is 2, padding is a layer of its own, as in keras.applications.ResNet50.
That is another network: its 1 x 1 convolutions have the stride, its convolutions have biases, and its epsilon differs. predict_on_batch
runs one compiled function. Images have the layout in which the backend computes.
"""

import keras
from keras import layers

from bench import contract
from bench.frameworks.keras import _images
from bench.frameworks.keras._pictures import own
from bench.workloads.resnet50_features import EPSILON, EXPANSION, SHAPE, blocks


def normalised(x, convolution, norm, filters, size=1, stride=1):
    # Stride and padding are explicit: "same" is symmetric for stride 1, but not for stride 2.
    padding = "same" if stride == 1 else "valid"
    if stride > 1 and size > 1:
        x = layers.ZeroPadding2D(size // 2)(x)
    x = layers.Conv2D(filters, size, stride, padding, use_bias=False, name=own(convolution))(x)
    axis = 1 if keras.config.image_data_format() == "channels_first" else -1
    return layers.BatchNormalization(axis=axis, momentum=0.9, epsilon=EPSILON, name=own(norm))(x)


def bottleneck(x, name, channels, stride, shortcut):
    h = layers.ReLU()(normalised(x, name + ".conv1", name + ".bn1", channels))
    h = layers.ReLU()(normalised(h, name + ".conv2", name + ".bn2", channels, 3, stride))
    h = normalised(h, name + ".conv3", name + ".bn3", EXPANSION * channels)
    if shortcut:
        x = normalised(x, name + ".downsample.0", name + ".downsample.1", EXPANSION * channels, 1, stride)
    return layers.ReLU()(layers.Add()([h, x]))


def network(channels_first, sides=SHAPE[1:]):
    pictures = keras.Input(SHAPE[:1] + sides if channels_first else sides + SHAPE[:1])
    x = layers.ReLU()(normalised(pictures, "conv1", "bn1", 64, 7, 2))
    # ReLU leaves nothing below zero: zeros at the border do not change the maximum.
    x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))
    for name, channels, stride, shortcut in blocks():
        x = bottleneck(x, name, channels, stride, shortcut)
    return keras.Model(pictures, layers.GlobalAveragePooling2D()(x))


class Inference(contract.Inference):
    def __init__(self, setup):
        self.network = network(_images.channels_first())

    def load(self, parameters):
        """A convolution has a kernel (kh, kw, in, out). A normalisation has scale, bias, mean and variance, in this order."""
        values = {}
        for name, value in parameters.items():
            value = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value
            values.setdefault(own(name.rpartition(".")[0]), []).append(value)
        for name, arrays in values.items():
            self.network.get_layer(name).set_weights(arrays)

    def inputs(self, x):
        return _images.contiguous(x)

    # Evaluation uses the running statistics. No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        return self.network.predict_on_batch(x)
