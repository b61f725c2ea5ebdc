"""DenseNet-121 in Chainer: Chains whose attributes have torchvision's names, loaded by Chainer's own deserializer.

Idiomatic here: the configuration "train" decides which statistics a normalisation uses: evaluation uses the running statistics. With
decay 0.9 a normalisation moves them a tenth of the way, the variance unbiased. Every process keeps its own; they are averaged before an
evaluation, as ChainerMN's AllreducePersistent does. Four of Chainer's defaults are not the specification's: a pool covers the border
(cover_all), a normalisation's epsilon is 2e-5, a convolution has a bias, and sigmoid_cross_entropy takes labels of 0 and 1 only. The
published labels are probabilities, so the loss is written out.
"""

import chainer
import chainer.functions as F
import chainer.links as L

from bench.frameworks.chainer._adam import Adam
from bench.frameworks.chainer._pictures import Trained

LAYERS = (6, 12, 24, 16)
GROWTH = 32
# torchvision's name for a vector of a normalisation -> Chainer's
NORMALISATION = {"weight": "gamma", "bias": "beta", "running_mean": "avg_mean", "running_var": "avg_var"}


def conv(inputs, outputs, size, stride=1, pad=0):
    return L.Convolution2D(inputs, outputs, size, stride, pad, nobias=True)


def norm(channels):
    return L.BatchNormalization(channels, decay=0.9, eps=1e-5)


class DenseLayer(chainer.Chain):
    def __init__(self, inputs):
        super().__init__()
        with self.init_scope():
            self.norm1, self.conv1 = norm(inputs), conv(inputs, 4 * GROWTH, 1)
            self.norm2, self.conv2 = norm(4 * GROWTH), conv(4 * GROWTH, GROWTH, 3, pad=1)

    def forward(self, x):
        new = self.conv1(F.relu(self.norm1(x)))
        new = self.conv2(F.relu(self.norm2(new)))
        return F.concat([x, new])


class DenseBlock(chainer.Chain):
    def __init__(self, inputs, count):
        super().__init__()
        self.names = ["denselayer%d" % (index + 1) for index in range(count)]
        with self.init_scope():
            for index, name in enumerate(self.names):
                setattr(self, name, DenseLayer(inputs + index * GROWTH))

    def forward(self, x):
        for name in self.names:
            x = self[name](x)
        return x


class Transition(chainer.Chain):
    def __init__(self, inputs):
        super().__init__()
        with self.init_scope():
            self.norm, self.conv = norm(inputs), conv(inputs, inputs // 2, 1)

    def forward(self, x):
        return F.average_pooling_2d(self.conv(F.relu(self.norm(x))), 2, 2)


class Features(chainer.Chain):
    def __init__(self):
        super().__init__()
        channels = 64
        with self.init_scope():
            self.conv0, self.norm0 = conv(3, channels, 7, 2, 3), norm(channels)
            for block, count in enumerate(LAYERS, 1):
                setattr(self, "denseblock%d" % block, DenseBlock(channels, count))
                channels += count * GROWTH
                if block < len(LAYERS):
                    setattr(self, "transition%d" % block, Transition(channels))
                    channels //= 2
            self.norm5 = norm(channels)

    def forward(self, x):
        x = F.max_pooling_2d(F.relu(self.norm0(self.conv0(x))), 3, 2, 1, cover_all=False)
        x = self.transition1(self.denseblock1(x))
        x = self.transition2(self.denseblock2(x))
        x = self.transition3(self.denseblock3(x))
        return F.mean(F.relu(self.norm5(self.denseblock4(x))), axis=(2, 3))


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.features = Features()
            self.classifier = L.Linear(1024, 14)

    def forward(self, x):
        return self.classifier(self.features(x))


def cross_entropy(logits, labels):
    """Mean binary cross-entropy of sigmoid(logits): there is exactly one sigmoid. F.sigmoid_cross_entropy takes integer labels only."""
    return F.mean(F.softplus(logits) - logits * labels)


class Training(Trained):
    def __init__(self, setup):
        super().__init__(Network())

    def fresh(self):
        # Adam's constants are explicit: defaults differ among frameworks.
        return Adam(alpha=1e-4, beta1=0.9, beta2=0.999, eps=1e-8)

    def set_rate(self, rate):
        self.optimizer.alpha = rate

    def own_name(self, name, value):
        """torchvision's features.norm0.weight -> features/norm0/gamma."""
        layer, end = name.rsplit(".", 1)
        if layer == "classifier":
            end = {"weight": "W", "bias": "b"}[end]
        else:
            end = NORMALISATION[end] if value.ndim == 1 else "W"
        return "%s/%s" % (layer.replace(".", "/"), end)

    def loss(self, logits, y):
        return cross_entropy(logits, y)
