"""ResNet-50 trained in Keras 3: the features' model with a Dense on top, a loss on logits, momentum; the same file on every backend.

Idiomatic here: a functional model is extended by calling a layer on its output. With momentum 0.9 a BatchNormalization moves its running
statistics a tenth of the way, the variance biased. Images have the layout in which the backend computes.
"""

import keras
from keras import layers

from bench.frameworks.keras import _images, resnet50_features
from bench.frameworks.keras._momentum import Momentum
from bench.frameworks.keras._pictures import Trained


def network():
    features = resnet50_features.network(_images.channels_first(), (None, None))
    return keras.Model(features.input, layers.Dense(1000, name="fc")(features.output))


class Training(Trained):
    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        optimizer = Momentum(learning_rate=0.0125, momentum=0.9, decay=1e-4)
        # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().__init__(network(), optimizer, loss)
